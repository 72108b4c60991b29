"""One module for each kind of source: it finds the images and says how each is decoded. `data/registry.py` lists them.

`columns`, `file_index`, `pickles` and `splits` are what several of them share.
"""
