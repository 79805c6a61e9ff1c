"""Find the network interface of this machine that leads to another one, and a free port."""

from __future__ import annotations

import socket

#: Variables that tell workers the interface towards ranks on other machines, and its address.
INTERFACE, ADDRESS = "DUALML_INTERFACE", "DUALML_ADDRESS"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of this address on which nobody listens at the moment; it is not reserved."""
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.bind(address)
        return int(probe.getsockname()[1])


def interface_variables(host: str) -> dict[str, str]:
    """Return variables with this machine's interface and address towards ``host``; the interface is
    left out if it is not found, and both where there is no route. Nothing is sent or set."""
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
