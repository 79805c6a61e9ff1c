"""What can be asked of a communicator, and how it says that it does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Tensor = Any
Kind = Literal["native", "composed", "unsupported"]
OPS = ("sum", "mean", "max", "min", "prod")
DTYPES = ("float16", "float32", "float64", "int32", "int64")
PRIMITIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "gather",
    "all_gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "exchange",
    "barrier",
    "subgroup",
    "asynchronous",
)


@dataclass(frozen=True)
class How:
    """How a primitive is executed, and from what, or why it is not."""

    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"
