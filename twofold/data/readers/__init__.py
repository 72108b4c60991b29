"""One reader module for each kind of data. A reader finds the images and defines how to decode each one.

`data/registry.py` lists the readers. `columns`, `file_index`, `pickles` and `splits` contain code that readers share.
"""
