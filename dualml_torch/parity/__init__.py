"""PyTorch implementation of `dualml.parity`."""
