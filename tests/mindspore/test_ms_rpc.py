"""MindSpore cannot call the stages of a split model, and says what runs instead."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("mindspore")

from dualml.backend import backends
from dualml.errors import Unsupported


def test_it_says_why_and_what_runs_instead() -> None:
    backend = backends()["mindspore"].create("cpu", 1)
    with pytest.raises(Unsupported, match='no remote procedure calls; engine = "messages" runs'):
        backend.rpc(cast(Any, None), cast(Any, None), **cast(Any, {}))
