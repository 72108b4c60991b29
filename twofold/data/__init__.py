"""Open images by a name, a path or an object, decode them, and turn them into batches and augmented views.

`open.py` finds the images, `load.py` decodes them, `loader.py` makes batches, and `augment.py` makes views.
"""
