"""Environment variables that a PyTorch worker needs before the import. Nothing here imports
torch."""

from __future__ import annotations

import os

from dualml.common.machine import thread_variables

#: ``channels_last`` or ``contiguous_format`` for the images of a trial with one rank on a CPU; if
#: unset, see `dualml_torch.algorithms.kernel_choice`. Elsewhere images are NCHW, which flat
#: buckets need.
MEMORY_FORMAT = "DUALML_TORCH_MEMORY_FORMAT"
#: ``always`` or ``never``: whether the gradients of such a trial are compiled; if unset, as above.
COMPILE = "DUALML_TORCH_COMPILE"


def environ(threads: int) -> dict[str, str]:
    """Return the environment variables of a worker with ``threads`` threads, see
    `thread_variables`; nothing is set.

    The number of threads is the caller's. All other variables keep the user's value if there is
    one.
    """
    asked = {
        # Without it cuBLAS chooses workspaces that make matrix products irreproducible.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # MKL would choose its number of threads anew in every run, and with it the order of sums.
        "MKL_DYNAMIC": "FALSE",
        # Waiting threads spin, by default for milliseconds: beside a process that occupies a core,
        # an update can take a hundred times as long. This number of turns, some tens of
        # microseconds, avoids that; on a quiet machine no cost was measured.
        "GOMP_SPINCOUNT": "10000",
        # By default the C library returns the memory of large tensors to the system in every
        # update and gets it again, page by page: up to a tenth of the time. (32 MiB is the limit.)
        "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
        # TF32 keeps 10 bits of the mantissa: then hardware differs, not the frameworks.
        "NVIDIA_TF32_OVERRIDE": "0",
    }
    return {
        **thread_variables(threads),
        **{name: os.environ.get(name, value) for name, value in asked.items()},
    }
