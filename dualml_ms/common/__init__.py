"""MindSpore implementation of `dualml.common`."""
