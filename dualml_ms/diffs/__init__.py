"""The probes of the catalogue in MindSpore, a file for each topic; see `dualml.diffs`."""

from __future__ import annotations

import contextlib


def settle() -> None:
    """After a probe that raised: in PyNative mode the late error of an operator comes up once more
    in whatever runs next, unless somebody waits for it."""
    import mindspore

    with contextlib.suppress(RuntimeError):
        mindspore.runtime.synchronize()
