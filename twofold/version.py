"""The version of Twofold, stated here alone."""

__version__ = "0.1.0"
