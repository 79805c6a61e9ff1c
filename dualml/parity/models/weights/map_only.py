"""Pair two models without running a comparison, for ``dualml compare --map-only``."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from dualml.backend import backends
from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.experiment.comparison import Note
from dualml.parity.models.inputs import serialize_map, to_arrays
from dualml.parity.models.messages import Language, format_message
from dualml.parity.models.model_ref import to_import_spec
from dualml.parity.models.side_jobs import (
    add_functions,
    correct_frameworks,
    describe_sides,
    name_frameworks,
    require_backends,
    resolve_sides,
)
from dualml.parity.models.sides import LETTERS, ResolvedSide, Side
from dualml.parity.models.user_map import ParameterMap
from dualml.parity.models.weights.loading import read_sides
from dualml.parity.models.weights.map_file import describe_map
from dualml.parity.models.weights.options import WeightOptions, loaded_notes, write_files
from dualml.parity.models.weights.pair_run import prepare_weights, run_pairing

TIMEOUT = 300.0
MAX_LISTED = 8  # unpaired tensors of a side that the text names


@dataclass(frozen=True)
class ModelMap:
    """The pairs of two models' tensors.

    Attributes:
        described: as JSON, in the schema ``dualml.map/1``.
        notes: notes about files that were read or written.
    """

    described: JsonObject
    notes: tuple[Note, ...] = field(default=())

    @property
    def is_complete(self) -> bool:
        """Whether every trained parameter of both sides has a partner, or equals one that the other
        side shares between modules."""
        return bool(self.described["complete"])

    def describe(self) -> JsonObject:
        """Return the map as JSON, in the schema ``dualml.map/1``."""
        return self.described

    def paragraph(self, lang: str = "en") -> str:
        """Return a text of several lines: how many tensors were paired, how, with which changes of
        layout, what is left, and the notes."""
        say = partial(format_message, cast("Language", lang))
        pairs, sides = self.described["pairs"], [self.described[letter] for letter in LETTERS]
        how = Counter(pair["how"] for pair in pairs)
        changes = Counter(" + ".join(pair["a_to_b"]) for pair in pairs if pair["a_to_b"])
        verdict = "map.complete" if self.is_complete else "map.incomplete"
        lines = [
            say(
                verdict,
                n=len(pairs),
                a=sides[0]["label"],
                b=sides[1]["label"],
                how=", ".join(f"{n} {say(f'map.how.{word}')}" for word, n in how.items()),
            )
        ]
        if changes:
            listed = ", ".join(f"{n} {word}" for word, n in changes.items())
            lines.append(say("map.changes", changes=listed))
        if squares := [pair["a"] for pair in pairs if is_unsure(pair)]:
            names = ", ".join(squares[:MAX_LISTED])
            lines.append(say("map.square", n=len(squares), names=names))
        for side in sides:
            if side["fused"]:
                names = ", ".join(list(side["fused"])[:MAX_LISTED])
                lines.append(
                    say("map.fused", side=side["label"], n=len(side["fused"]), names=names)
                )
            rows = side["unpaired"]
            for row in rows[:MAX_LISTED]:
                kind = "parameter" if row["trained"] else "buffer"
                lines.append(
                    say(
                        "map.unpaired",
                        side=side["label"],
                        kind=say(f"map.{kind}"),
                        name=row["name"],
                        shape=tuple(row["shape"]),
                        why=row["why"],
                    )
                )
            if len(rows) > MAX_LISTED:
                lines.append(say("map.more", side=side["label"], n=len(rows) - MAX_LISTED))
        lines += [say(f"note.{note.key}", **note.values) for note in self.notes]
        return "\n".join(lines)


def is_unsure(pair: Mapping[str, Any]) -> bool:
    """Return whether a pair of the map is one of square matrices that the user did not name: then
    nothing says for certain whether one is transposed."""
    shape = pair["a_shape"]
    return pair["how"] != "asked" and len(shape) == 2 and shape[0] == shape[1]


def pair_models(
    a: Any,
    b: Any,
    inputs: Any = None,
    *,
    map: ParameterMap | None = None,
    timeout: float = TIMEOUT,
    sides: tuple[Side, Side] = (Side(), Side()),
    weights: WeightOptions | None = None,
) -> ModelMap:
    """Build two models, without training them, and return how their tensors are paired.

    Args:
        a, b: as `dualml.parity.compare` takes them.
        inputs: arrays for a forward pass on both sides, which pairs what names do not; None: only
            names and shapes count.
        map, sides: as `dualml.parity.compare` takes them.
        timeout: seconds for each side.
        weights: files of weights and maps that are read or written; None for none.

    Raises:
        UserError: a model cannot be built, a file cannot be read or written, or weights are to be
            written but none are given.
    """
    options = weights or WeightOptions()
    options.check()
    if options.write_weights is not None and options.weights is None:
        raise UserError(
            "--map-only --write-weights needs --weights: nothing else gives them values"
        )
    arrays = [] if inputs is None else to_arrays(inputs, "inputs")
    models = to_import_spec(a, "model A"), to_import_spec(b, "model B")
    known = backends()
    names = name_frameworks((a, b), models, sides)
    require_backends(names, known)
    settings: dict[str, Any] = {
        "weights": options.describe(),
        "map": serialize_map(map),
        "targets": False,
        "train": False,
        "seed": 0,
        "timeout": timeout,
        "complete": False,
        "path": [str(Path(place or ".").resolve()) for place in sys.path],
    }
    with tempfile.TemporaryDirectory(prefix="dualml-map-") as temporary:
        folder = Path(temporary)
        while True:
            infos = require_backends(names, known)
            checked = resolve_sides(sides, infos, models, folder / ".overlay")
            resolved = add_functions(checked, [None, None], [None, None])
            try:
                return pair_sides(
                    folder, settings | describe_sides(resolved), resolved, arrays, options
                )
            except UserError:  # perhaps a model is of another framework than its source says
                corrected = correct_frameworks(folder, resolved, sides, names)
                if corrected is None:
                    raise
                names = corrected


def pair_sides(
    folder: Path,
    job: dict[str, Any],
    sides: tuple[ResolvedSide, ResolvedSide],
    arrays: list[Any],
    options: WeightOptions,
) -> ModelMap:
    """Pair both sides of a job in ``folder``, read and write the files that ``options`` name, and
    return the map."""
    if job["weights"]:
        job = prepare_weights(folder, job, sides, arrays)
    else:
        run_pairing(folder, job, sides, arrays)
    described = describe_map(*read_sides(folder, job))
    notes = [*loaded_notes(job), *write_files(options, folder, job, sides)]
    return ModelMap(described, tuple(notes))
