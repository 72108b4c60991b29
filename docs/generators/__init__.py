"""The generated pages of the documentation.

`site.write` writes the reference pages, which follow from the code, each time the site is built. `pages.committed`
returns the pages that are made of records and of checked claims. These are committed, and `python docs/generate.py`
writes them.
"""
