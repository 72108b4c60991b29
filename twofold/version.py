"""The version of Twofold. The package metadata reads it from here."""

__version__ = "0.2.0.dev0"
