"""Code that only CUDA needs: kernels, streams, graph capture, bf16 weight copies, the fused optimizer.

You can read the rest of Twofold without this folder: it changes the speed of a run, not its results. It does not import
the trainer.
"""
