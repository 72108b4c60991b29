"""From a name, a path or an object to batches of images on a device, and to their augmented views.

`open.py` says what there is, `load.py` decodes it, `loader.py` hands out batches, `augment.py` makes views.
"""
