"""The version of dualml, in a module without imports that every other module can import."""

__version__ = "0.2.0"
