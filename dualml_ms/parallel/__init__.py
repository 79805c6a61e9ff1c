"""MindSpore implementation of `dualml.parallel`."""
