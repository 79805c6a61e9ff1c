"""PyTorch implementation of `dualml.parallel`."""
