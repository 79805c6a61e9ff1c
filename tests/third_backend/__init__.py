"""A third backend, packaged as an outside project would: float32 NumPy with automatic
differentiation, and ranks that are processes connected by sockets.

It shares nothing with the reference but NumPy. It tests the backend interface with an
implementation that knows nothing about dualml's own backends. It implements training,
activation capture, gradient access, process groups and pipeline stages; all other capabilities
are left out.
"""

from dualml.backend import BackendInfo
from dualml.common.machine import thread_variables


def info() -> BackendInfo:
    """Return the backend's description: the entry point of the group ``dualml.backends``."""
    return BackendInfo(
        name="single",
        framework="numpy",
        install="pip install single",
        factory="third_backend.backend:SingleBackend",
        environ=thread_variables,
        ranks="processes",
        preload=("third_backend.backend",),
    )
