"""A third framework, as a package outside of dualml would add it: NumPy in single precision with
automatic differentiation, ranks that are processes and talk over sockets.

It shares nothing with the referee but NumPy, and stands in the tests so that the boundary is met by
somebody who has seen nothing else. It trains, observes, divides, joins and stages; the rest of the
abilities it leaves out.
"""

from dualml.backend import BackendInfo
from dualml.machine import thread_variables


def info() -> BackendInfo:
    """Entry point of the group ``dualml.backends``."""
    return BackendInfo(
        name="single",
        framework="numpy",
        install="pip install single",
        factory="third_backend.backend:SingleBackend",
        environ=thread_variables,
        ranks="processes",
    )
