"""The kind of an arm, inferred from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from dualml.common.tagged_union import read_setting
from dualml.experiment.split import Split
from dualml.parallel.aggregation.settings import Aggregation


def infer_kind(settings: Any) -> str:
    """Return the tag of the kind of arm that ``settings`` (a mapping or an object) describe: the
    first one in `KINDS` that fits, so that the errors of settings that exclude each other are this
    kind's. Other values are ``single``."""
    if not isinstance(settings, Mapping | BaseModel):
        return "single"
    if read_setting(settings, "kind") == "collectives":
        return "collectives"
    if read_setting(settings, "method"):
        return "method"
    if (split := read_setting(settings, "split")) is not None:
        tag = Split.infer_tag(split)
        return "split" if tag == "messages" else f"split_{tag}"
    if read_setting(settings, "zero") not in (0, None):
        return "sharded"
    sharing = Aggregation.infer_tag(read_setting(settings, "aggregation"))
    if sharing in ("asynchronous", "averaging"):
        return sharing
    ranks = read_setting(settings, "world_size")
    return "data_parallel" if isinstance(ranks, int) and ranks > 1 else "single"
