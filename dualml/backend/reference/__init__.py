"""The NumPy backend in float64: the reference that frameworks are compared with, and the core's
test double."""

from dualml.backend import BackendInfo
from dualml.common.machine import thread_variables


def info() -> BackendInfo:
    """Return the backend's description; entry point of the group ``dualml.backends``."""
    return BackendInfo(
        name="numpy",
        framework="numpy",
        install="pip install dualml",
        factory="dualml.backend.reference.backend:NumpyBackend",
        environ=thread_variables,
        ranks="threads",
        preload=("dualml.backend.reference.backend",),
    )
