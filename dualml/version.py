"""The version, in a file that imports nothing and that every file may import."""

__version__ = "0.1.0"
