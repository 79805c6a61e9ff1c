"""PyTorch implementation of `dualml.common`."""
