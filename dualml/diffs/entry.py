"""One entry of the catalogue, as its file has it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

#: In the order in which a training step meets them; each is a file of ``entries``.
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


class Text(BaseModel):
    """The same sentence in both languages; Markdown code spans are allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    en: str = Field(min_length=1)
    zh: str = Field(min_length=1)


class Entry(BaseModel):
    """What the frameworks do, what it does to numbers, and how to make them equal.

    Attributes:
        name: of the entry; of the probes with ``_`` for ``-``.
        kind: what the difference is: a ``value`` (a relative distance), a ``shape``, a ``type``
            (of numbers), one side that ``raises``, one that gives ``nan``; or ``same``: people ask,
            and there is none.
        at_least: the smallest relative distance that counts as the difference that is described;
            of kind ``same`` the largest.
        after: the largest relative distance once both are made equal; None where nothing does.
        ranks: how many ranks the probe needs.
        silent: nothing tells the user.
        sources: documentation pages, or files of the frameworks.
        explains: what a comparison of models names of it: OPERATION.SETTING, as ``layer_norm.eps``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    topic: str
    title: Text
    torch: Text
    mindspore: Text
    remedy: Text
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
        """Name of its probes."""
        return self.name.replace("-", "_")
