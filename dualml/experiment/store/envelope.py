"""``envelope.json``: how far a backend deviates from itself when only rounding changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.experiment.store.jsonfile import Count, JsonFile, Number, Record
from dualml.experiment.store.tensors import TraceKey

#: A width; null is infinity: a perturbed run was not finite.
Width = Number | None


class Widths(Record):
    """Rounding envelope widths of the loss, per update, and of each traced tensor."""

    loss: list[Width]
    tensors: dict[TraceKey, Width]


class EnvelopeRecord(Widths):
    """The content of ``envelope.json``."""

    draws: Count
    plain: Widths | None = None

    @model_validator(mode="after")
    def _draws_are_equally_long(self) -> EnvelopeRecord:
        """Raise `UserError` if ``plain.loss`` and ``loss`` are not equally long."""
        if self.plain is not None and len(self.plain.loss) != len(self.loss):
            raise UserError("loss and plain.loss are not equally long")
        return self


ENVELOPE = JsonFile("envelope.json", EnvelopeRecord)


@dataclass(frozen=True)
class Envelope:
    """Largest distance of any perturbed run from the unperturbed one, per tensor and step.

    Attributes:
        loss: (updates of the horizon,) relative distance of the loss.
        tensors: ``PHASE/STEP/TENSOR`` → relative distance.
        draws: number of perturbed runs.
        plain_loss, plain_tensors: distances of the perturbed run that keeps the samples in order;
            None and empty in files of earlier versions.
    """

    loss: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    tensors: Mapping[str, float] = field(default_factory=dict)
    draws: int = 0
    plain_loss: NDArray[np.float64] | None = None
    plain_tensors: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_content(cls, value: Mapping[str, Any]) -> Envelope:
        """Make an envelope from the content of its file, as `describe` returns it."""
        return cls.from_record(ENVELOPE.make_record(value))

    @classmethod
    def from_record(cls, record: EnvelopeRecord) -> Envelope:
        """Make an envelope from its record."""
        plain = (None, {}) if record.plain is None else as_arrays(record.plain)
        return cls(*as_arrays(record), record.draws, *plain)

    def describe(self) -> JsonObject:
        """Return the content of ``envelope.json``; infinities stay numbers."""
        content = {"draws": self.draws, "loss": self.loss.tolist(), "tensors": dict(self.tensors)}
        if self.plain_loss is not None:
            plain = {"loss": self.plain_loss.tolist(), "tensors": dict(self.plain_tensors)}
            content["plain"] = plain
        return content


def as_arrays(widths: Widths) -> tuple[NDArray[np.float64], dict[str, float]]:
    """Return widths as an array for the loss, (updates,), and a mapping for the tensors, with null
    as infinity."""
    tensors = {key: math.inf if w is None else w for key, w in widths.tensors.items()}
    return np.array([math.inf if w is None else w for w in widths.loss], np.float64), tensors


def write_envelope(folder: Path, envelope: Envelope) -> None:
    """Write the rounding envelope of a trial to its folder, in place of an earlier one."""
    ENVELOPE.write(folder, ENVELOPE.make_record(envelope.describe()))


def read_envelope(folder: Path) -> Envelope | None:
    """Read a trial's rounding envelope; None if it has none, as the float64 reference in full
    precision, a method, or a trial whose order is left to chance.

    Raises:
        UserError: the file is damaged.
    """
    record = ENVELOPE.read_if_present(folder)
    return None if record is None else Envelope.from_record(record)
