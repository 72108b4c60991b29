"""Training: `setup.py` builds the parts, `trainer.py` is the loop, `step.py` is one step."""
