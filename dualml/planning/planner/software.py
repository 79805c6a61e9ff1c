"""Training software: which messages it sends beside computing, and how it launches kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dualml.common.errors import UserError, did_you_mean
from dualml.common.parse import from_toml


@dataclass(frozen=True)
class TrainingSoftware:
    """Description of what a training software does beside computing.

    Args:
        name: name, as of an engine.
        source: where this is documented.
        overlap: share of the computation beside which messages between replicas run, 0 to 1.
        tensor, context, pipeline: whether messages of tensor parallelism, of context parallelism
            and between stages run beside computation.
        attention: attention kernel, if attention is fused.
        kernels: kernels that the forward pass of a layer launches.
        pieces: messages for each layer that ZeRO-3 gathers or reduces.
        moves: bytes that operations other than products move, over those of fused kernels.
        rings: whether collectives between replicas leave a node through the ports of all its
            devices; else each device receives everything through its own.
    """

    name: str = "plain"
    source: str = ""
    overlap: float = 0.0
    tensor: bool = False
    context: bool = False
    pipeline: bool = False
    attention: str = "flash2"
    kernels: int = 0
    pieces: int = 1
    moves: float = 1.0
    rings: bool = True


#: Software that sends every message while nothing is computed, and launches nothing.
PLAIN = TrainingSoftware()


@cache
def training_software() -> Mapping[str, TrainingSoftware]:
    """Return name → software of the package's ``software.toml``."""
    text = (files("dualml.planning.planner") / "software.toml").read_text("utf-8")
    return {name: TrainingSoftware(name, **entry) for name, entry in from_toml(text).items()}


def find_software(name: str) -> TrainingSoftware:
    """Return a training software by its name; if the name is unknown and has a hyphen, as
    ``torch-fsdp2``, the software named before the first hyphen.

    Raises:
        UserError: an unknown name.
    """
    known = training_software()
    for candidate in (name, name.split("-")[0]):
        if candidate in known:
            return known[candidate]
    raise UserError(f"unknown training software {name!r}{did_you_mean(name, known)}")
