"""PyTorch implementation of `dualml.launch`."""
