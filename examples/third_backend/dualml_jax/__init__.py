"""JAX as a third backend: what every backend has to do, for trials with one rank on a CPU.

    pip install -e examples/third_backend
    dualml run lab1 --quick --backend jax,numpy
    dualml compare net_torch.py:Net net_jax.py:Net --shape 4,8    # see `dualml_jax.models`

`docs/recipes/backend.md` lists the further capabilities of a backend, such as several ranks or
pipeline stages; dualml reports those that it does not declare as `unsupported`, with the reason.
"""

from dualml.backend import BackendInfo
from dualml.common.machine import thread_variables


def environ(threads: int) -> dict[str, str]:
    """Return the environment variables that a worker needs before it imports JAX."""
    return {**thread_variables(threads), "JAX_PLATFORMS": "cpu"}


def info() -> BackendInfo:
    """Return the backend's description: the entry point. dualml's parent process calls it, so JAX
    is not imported here."""
    return BackendInfo(
        name="jax",
        framework="jax",
        install="pip install jax",
        factory="dualml_jax.backend:JaxBackend",
        environ=environ,
    )
