"""Ranks on other machines, started with OpenSSH's client: `dualml run --hosts FILE`."""
