"""Run folders whose files were edited, truncated, emptied or removed give a page and verdicts from
what can be read, or a one-line error that names the file."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.load import load
from dualml.parity.judge import judge_run
from dualml.report.compose import compose

sys.path.append(str(Path(__file__).resolve().parents[1] / "golden"))
import golden_recorded

pytestmark = pytest.mark.whole

#: Replacements of a field's value: other types, numbers that no float holds, deep nesting.
VALUES: tuple[Any, ...] = (None, "x", True, -1e400, 10**400, [], {"a": {"b": [1]}}, [[[[0]]]])
#: Replacements of a file's content.
CONTENTS: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda content: None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "reversed": lambda content: content[::-1],
    "binary": lambda content: bytes(range(256)) * 4,
    "deeply nested": lambda content: b"[" * 100_000,
    "a list": lambda content: b"[]",
    "a newer version": lambda content: content.replace(b'"format": 1', b'"format": 99'),
}
#: Readers of a run folder: a page, the verdicts, a resumed run.
USES: tuple[Callable[[Path], object], ...] = (
    lambda folder: compose(load([folder]), Messages("en")),
    judge_run,
    RunFolder.open,
)
#: Lab → number of edits of its folder, chosen by a hash; ten times as many with ``--slow``.
EDITS = {"lab1": 150, "lab2": 40, "lab3": 40}
Edit: TypeAlias = tuple[str, str, bytes | None]


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return every field of a file; of a list, the first entry."""
    if here:
        yield here
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*here, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*here, 0))


def with_value(content: bytes, place: tuple[Any, ...], value: Any) -> bytes:
    edited = json.loads(content)
    inner = edited
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(edited).encode()


def edits(folder: Path) -> Iterator[Edit]:
    """Return file, edit, and the file's content after it."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name, content = path.relative_to(folder).as_posix(), path.read_bytes()
        for what, change in CONTENTS.items():
            if (edited := change(content)) != content:
                yield name, what, edited
        if path.suffix == ".json":
            for number, place in enumerate(places(json.loads(content))):
                value = VALUES[number % len(VALUES)]
                yield name, f"{place}: {str(value)[:9]}", with_value(content, place, value)


def rank(edit: Edit) -> str:
    return hashlib.sha256(f"{edit[0]} {edit[1]}".encode()).hexdigest()


def refusal(use: Callable[[Path], object], folder: Path) -> str:
    """Return the message of a `UserError`, or ""; any other exception yields a text with a line
    break."""
    try:
        use(folder)
    except UserError as error:
        return str(error)
    except Exception as error:
        return f"{error!r}\n"
    return ""


@pytest.mark.parametrize("lab", EDITS)
def test_an_edited_file_is_shown_around_or_named(
    tmp_path: Path, lab: str, request: pytest.FixtureRequest
) -> None:
    folder = golden_recorded.unpacked(lab, tmp_path)
    many = EDITS[lab] * (10 if request.config.getoption("--slow") else 1)
    chosen = sorted(edits(folder), key=rank)[:many]
    assert len(chosen) >= EDITS[lab]
    refusals = []
    for name, what, content in chosen:
        file = folder / name
        kept = file.read_bytes()
        file.unlink() if content is None else file.write_bytes(content)
        refusals += [(name, what, text) for use in USES if (text := refusal(use, folder))]
        file.write_bytes(kept)
    assert 0 < len(refusals) < len(USES) * len(chosen)
    for name, what, text in refusals:
        file = folder / name
        named = any(part in text for part in (file.name, file.parent.name, str(folder)))
        assert named, (name, what, text)
        assert "\n" not in text, (name, what, text)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("links", 0, "target"), 9, "links.0: there are 2 ranks"),
        (("meetings", 0, "ranks"), [0, 2**31], "meetings.0: there are 2 ranks"),
        (("ranks", 1, "stages"), [7], "ranks.1.stages: there are 2 stages"),
        (("ranks", 1, "pipeline"), 2, "ranks.1.pipeline is beyond the mesh, 2"),
        (("ranks", 1, "rank"), 0, "ranks are not numbered from 0"),
        (("driver",), 5, "driver: there are 2 ranks"),
    ],
)
def test_a_split_names_its_own_ranks_and_stages(
    place: tuple[Any, ...], value: Any, reason: str
) -> None:
    from pydantic import ValidationError

    from dualml.algorithms.model import model
    from dualml.experiment.store.plan_record import PlannedSplit
    from dualml.parallel.split import traffic
    from dualml.parallel.split.plan import split_plan

    plan = split_plan(model("mlp"), 2)
    described = json.loads(json.dumps({"cut": list(plan.cut), **traffic.describe(plan, 8)}))
    described["meetings"] = [{"ranks": [0, 1], "kind": "all-reduce", "calls": 1, "nbytes": 8}]
    PlannedSplit.model_validate(described)
    edited = json.loads(with_value(json.dumps(described).encode(), place, value))
    with pytest.raises(ValidationError, match=reason):
        PlannedSplit.model_validate(edited)


def test_a_problem_of_a_whole_experiment_has_no_place_in_it() -> None:
    from dualml.experiment.store.protocol import _is_version_problem

    assert _is_version_problem({"loc": (), "input": {}, "type": "value_error"})
