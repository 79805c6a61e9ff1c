"""PyTorch implementation of `dualml.experiment`."""
