"""The schema of a catalogue entry, as its TOML file holds it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

#: Topics in the order in which a training step meets them; each is a file in ``entries``.
TOPICS = (
    "data",
    "initialisers",
    "layers",
    "modes",
    "losses",
    "optimizers",
    "schedules",
    "precision",
    "collectives",
    "tensors",
)
Lang = Literal["en", "zh"]


class EntryText(BaseModel):
    """One sentence in English and Chinese; Markdown code spans are allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    en: str = Field(min_length=1)
    zh: str = Field(min_length=1)


class DifferenceEntry(BaseModel):
    """One semantic difference: what each framework does, how it affects numbers, and how to make
    both equal.

    Attributes:
        name: name of the entry; probes have ``_`` in place of ``-``.
        topic: one of `TOPICS`.
        title: the difference in one line.
        torch, mindspore: what each framework does.
        remedy: how to make both equal.
        kind: the kind of difference: a ``value`` (a relative distance), a ``shape``, a ``type`` (of
            numbers), one side that ``raises``, one that gives ``nan``; or ``same``, for a
            difference that people expect but that does not exist.
        at_least: the smallest relative distance that confirms the entry; for kind ``same`` the
            largest.
        after: the largest relative distance once both are made equal; None if nothing makes them
            equal.
        ranks: number of ranks that the probe needs.
        silent: whether neither framework reports the difference.
        sources: documentation pages, or files of the frameworks.
        explains: causes in model comparisons that the entry explains: OPERATION.SETTING, as
            ``layer_norm.eps``.
        seen: versions and device on which the difference was observed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    topic: str
    title: EntryText
    torch: EntryText
    mindspore: EntryText
    remedy: EntryText
    kind: Literal["value", "shape", "type", "raises", "nan", "same"] = "value"
    at_least: float = Field(0.0, ge=0)
    after: float | None = Field(None, ge=0)
    ranks: int = Field(1, ge=1, le=4)
    silent: bool = True
    sources: tuple[str, ...] = Field(min_length=1)
    explains: tuple[str, ...] = ()
    seen: tuple[str, ...] = ("torch 2.13.0", "mindspore 2.10.0", "cpu")

    @property
    def function(self) -> str:
        """Name of the entry's plain probe function; that of the remedy ends in ``_equal``."""
        return self.name.replace("-", "_")
