"""One record for everything that could be wrong: in a model, in an experiment, in an exercise.

A search tries hypotheses on what was recorded: on the graph of a model (`dualml.parity.causes`), on
an experiment that the reference replays (`dualml.parity.finder`), on a student's file
(`dualml.course`). The record says the same of each: what is changed, how that is tested, how it is
called at every depth of explanation, what the catalogue knows of it, and which edit makes it.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from dualml.common.words import load_messages
from dualml.parity.diffs.lookup import entries_about

Depth = Literal["symptom", "place", "principle", "cause"]
#: Depths of explanation, from what shows to what is wrong.
DEPTHS: tuple[Depth, ...] = ("symptom", "place", "principle", "cause")
#: (update, rank) → predicted tensors of a phase.
Predict = Callable[[int, int], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class Patch:
    """An edit of one function or class of a source file.

    Attributes:
        file, target: the file's name and the class or function, as ``optim_torch.py`` and ``GD``.
        edits: (old, new), each once in the target.
    """

    file: str = ""
    target: str = ""
    edits: tuple[tuple[str, str], ...] = ()

    def apply(self, source: str) -> str:
        """Return the source of a file with the edits made inside the target.

        Raises:
            ValueError: the file has no such target, or an old text does not occur exactly once in
                it.
        """
        lines = source.splitlines(keepends=True)
        node = next(
            (n for n in ast.parse(source).body if getattr(n, "name", None) == self.target), None
        )
        if node is None or node.end_lineno is None:
            raise ValueError(f"{self.file}: there is no {self.target}")
        before = "".join(lines[: node.lineno - 1])
        own = "".join(lines[node.lineno - 1 : node.end_lineno])
        after = "".join(lines[node.end_lineno :])
        for old, new in self.edits:
            if own.count(old) != 1:
                count = own.count(old)
                raise ValueError(f"{self.file}:{self.target}: {old!r} is there {count} times")
            own = own.replace(old, new)
        return before + own + after


def predict_nothing(step: int, rank: int) -> Mapping[str, NDArray[Any]]:
    """Return no tensors: nothing is predicted."""
    return {}


@dataclass(frozen=True)
class Hypothesis:
    """Something that could be wrong.

    Attributes:
        cause: its name, a key among the messages and in the catalogue.
        predict: ``predict(step, rank)`` → the tensors that would be recorded then; none if a host
            changes the recorded program by `mutation` and runs it instead.
        detail: numbers that were tried or fitted, for the report.
        fitted_count: how many of them were fitted; of two hypotheses that explain equally much, the
            one with fewer fitted numbers is better.
        also: phase → prediction, for the phases that follow from the same cause.
        cost: how unusual it is: 0 for a known mistake, more for a change of a line.
        roughness: share of a tensor's deviation that it may leave, where it cannot know the order
            in which a backend rounds.
        update: the whole update by which it predicts, where it is one; equal ones are one cause.
        mutation: the change that a host makes to try it: the option of a rule, a mutation of calls.
            None if it is only predicted, or changes nothing that is computed.
        section: section of the messages about it.
        patch: the edit of a correct source that makes this mistake; without edits if it is not
            known.
    """

    cause: str
    predict: Predict = field(default=predict_nothing, compare=False)
    detail: dict[str, Any] = field(default_factory=dict)
    fitted_count: int = 0
    also: Mapping[str, Predict] = field(default_factory=dict, compare=False)
    cost: int = 0
    roughness: float = 0.0
    update: Callable[[Any], Any] | None = field(default=None, compare=False)
    mutation: Any = None
    section: str = "cause"
    patch: Patch = Patch()

    def words(self, lang: str, depth: Depth) -> str:
        """Return its sentence in a language at one depth of explanation; empty if there is none.

        A cause without a sentence of its own has that of its family. Placeholders in braces, which
        are keys of `detail`, are not filled in.
        """
        messages, name = load_messages(lang), f"{self.section}.{self.cause}"
        says = "says" if self.section == "cause" and depth == "cause" else depth
        return messages.get(f"{name}.{says}") or messages.get(f"family.{self.family}.{depth}", "")

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the catalogue entries about it (`dualml diffs NAME`), the best one first."""
        return entries_about(self.cause) if self.section == "cause" else ()

    @property
    def family(self) -> str:
        """Name of the family of causes that it belongs to; empty if it belongs to none."""
        names = self.family_keys if self.section == "cause" else ()
        return next((found for name in names if (found := load_families().get(name))), "")

    @property
    def family_keys(self) -> tuple[str, ...]:
        """Keys under which ``families.toml`` may list it, the most special one first."""
        return (self.cause,)


@functools.cache
def load_families() -> dict[str, str]:
    """Return the family of each cause, setting and kind of mutation in ``families.toml``."""
    table = tomllib.loads((Path(__file__).parent / "families.toml").read_text("utf-8"))
    return {name: family for family, names in table.items() for name in names}
