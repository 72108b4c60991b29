"""What only CUDA needs: kernels, streams, graph capture, bf16 weight copies, the fused optimizer.

A reader may leave this folder closed: without it a run computes the same, only slower. It knows no Trainer.
"""
