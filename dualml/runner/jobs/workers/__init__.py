"""Workers of a command that is not a dualml run: any script, started several times, with the
variables by which PyTorch and MindSpore form a process group."""
