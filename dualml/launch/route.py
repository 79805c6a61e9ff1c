"""Which of this machine's network interfaces leads to another one, and which port is free."""

from __future__ import annotations

import socket

#: For workers: the interface by which ranks on other machines are reached, and its address.
INTERFACE, ADDRESS = "DUALML_INTERFACE", "DUALML_ADDRESS"


def free_port(host: str = "127.0.0.1") -> int:
    """One of this address that nobody listens at now."""
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.bind(address)
        return int(probe.getsockname()[1])


def near(host: str) -> dict[str, str]:
    """Variables with this machine's interface and address towards ``host``; empty where the system
    has no way there. Nothing is sent."""
    import psutil

    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            address = str(probe.getsockname()[0])
    except OSError:
        return {}
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            return {INTERFACE: name, ADDRESS: address}
    return {ADDRESS: address}
