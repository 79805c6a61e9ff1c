"""PyTorch implementation of `dualml.algorithms`."""
