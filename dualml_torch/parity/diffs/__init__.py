"""Probes of the catalogue in PyTorch, one file per topic; see `dualml.parity.diffs`."""
