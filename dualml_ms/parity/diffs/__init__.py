"""Probes of the catalogue in MindSpore, one file per topic; see `dualml.parity.diffs`."""

from __future__ import annotations

import contextlib


def settle() -> None:
    """Wait until MindSpore has run what is queued, and discard its errors, after a probe that
    raised: in PyNative mode an operator's error would otherwise be raised again in whatever runs
    next."""
    import mindspore

    with contextlib.suppress(RuntimeError):
        mindspore.runtime.synchronize()
