"""MindSpore implementation of `dualml.experiment`."""
