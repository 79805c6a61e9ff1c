"""Ranks on machines that OpenSSH's client reaches: `dualml run --hosts FILE`."""
