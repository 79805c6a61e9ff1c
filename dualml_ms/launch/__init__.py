"""MindSpore implementation of `dualml.launch`."""
