"""MindSpore implementation of `dualml.algorithms`."""
