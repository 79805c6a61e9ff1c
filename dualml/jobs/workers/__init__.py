"""Workers of a command that is no run of dualml's: any script, started several times, with the
variables by which PyTorch and MindSpore form a process group."""
