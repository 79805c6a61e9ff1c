"""Environment variables a PyTorch worker needs before the import. Nothing here imports torch."""

from __future__ import annotations

import os

from dualml.machine import default_threads


def environ(threads: int) -> dict[str, str]:
    """Variables of a worker with ``threads`` threads; 0 or less is `default_threads`.

    The number of threads is the caller's. Everything else leaves a value of the user's alone.
    """
    count = str(threads if threads > 0 else default_threads())
    asked = {
        # Without it cuBLAS chooses workspaces that make matrix products irreproducible.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # MKL would choose its number of threads anew in every run, and with it the order of sums.
        "MKL_DYNAMIC": "FALSE",
        # TF32 keeps 10 bits of the mantissa: then hardware differs, not the frameworks.
        "NVIDIA_TF32_OVERRIDE": "0",
    }
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        **{name: os.environ.get(name, value) for name, value in asked.items()},
    }
