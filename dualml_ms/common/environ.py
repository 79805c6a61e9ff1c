"""Environment variables that a MindSpore worker needs before the import. Nothing here imports
mindspore.

The first call on a machine may measure for some seconds: see `dualml_ms.common.isa`.
"""

from __future__ import annotations

import os
from importlib.metadata import version

from packaging.version import Version

from dualml.common.errors import UserError
from dualml.common.machine import thread_variables
from dualml_ms.common.isa import REASON_VARIABLE, VARIABLE, choose_isa


def environ(threads: int) -> dict[str, str]:
    """Return the variables of a worker with ``threads`` threads, see `thread_variables`.

    The number of threads is the caller's. All other variables keep the user's value if there is
    one. The first call on a CPU with AVX-512 measures for some seconds and stores the result
    (`choose_isa`).

    Raises:
        UserError: NumPy 2, with which MindSpore computes wrong numbers or fails elsewhere.
    """
    if Version(numpy := version("numpy")).major >= 2:
        raise UserError(
            f"MindSpore breaks silently with NumPy {numpy}: pip install 'numpy<2', or leave "
            "MindSpore out (--backend torch)"
        )
    asked = {
        # Without it cuBLAS chooses workspaces that make matrix products irreproducible.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # TF32 keeps 10 bits of the mantissa: then hardware differs, not the frameworks.
        "NVIDIA_TF32_OVERRIDE": "0",
        # As in `dualml_torch.common.environ`.
        "GOMP_SPINCOUNT": "10000",
        # Errors only: the import warns about missing parts of accelerators that are not used.
        "GLOG_v": "3",
        # Silences the message that a graph cannot be loaded which is not cached yet.
        "MS_SUBMODULE_LOG_v": "{CORE:4}",
    }
    chosen = choose_isa()
    return {
        **thread_variables(threads),
        **{name: os.environ.get(name, value) for name, value in asked.items()},
        **({VARIABLE: chosen.isa} if chosen.isa else {}),
        REASON_VARIABLE: chosen.reason,
    }
