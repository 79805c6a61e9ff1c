"""Environment variables by which gloo and NCCL choose a network interface."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

GLOO_INTERFACE, NCCL_INTERFACE = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
NCCL_DEBUG = "NCCL_DEBUG"
#: Variables passed to all ranks, also on other machines; a run records them.
VARIABLES = (GLOO_INTERFACE, NCCL_INTERFACE, NCCL_DEBUG)
#: Values of `NCCL_DEBUG`, in any case.
LEVELS = ("VERSION", "WARN", "INFO", "TRACE", "ABORT")


def network_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return those of `VARIABLES` that are set and not empty, in ``environ`` or, without it, in
    this process."""
    given = os.environ if environ is None else environ
    return {name: given[name] for name in VARIABLES if given.get(name)}


def interfaces() -> list[str]:
    """List the names of this machine's network interfaces, sorted; empty if not reported."""
    try:
        return sorted(name for _, name in socket.if_nameindex())
    except (OSError, AttributeError):
        return []


def unknown_interfaces(variable: str, value: str, known: Sequence[str]) -> list[str]:
    """List the names in a variable's value that match no network interface.

    gloo takes full names. NCCL takes prefixes, full names after ``=``, and after ``^`` interfaces
    to exclude, which need not exist.

    >>> unknown_interfaces("NCCL_SOCKET_IFNAME", "eth,ib", ["eth0", "lo"])
    ['ib']
    >>> unknown_interfaces("NCCL_SOCKET_IFNAME", "=eth", ["eth0", "lo"])
    ['eth']
    """
    if variable == NCCL_INTERFACE and value.startswith("^"):
        return []
    exact = variable == GLOO_INTERFACE or value.startswith("=")
    names = [name for name in value.removeprefix("=").split(",") if name]
    if exact:
        return [name for name in names if name not in known]
    return [name for name in names if not any(one.startswith(name) for one in known)]
