"""The yardstick for small folders: what features of a folder of images are worth, from raw pixels to trained encoders.

`python -m benchmarks.folders --help` runs it.
"""
