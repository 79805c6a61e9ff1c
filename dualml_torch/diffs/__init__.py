"""The probes of the catalogue in PyTorch, a file for each topic; see `dualml.diffs`."""
