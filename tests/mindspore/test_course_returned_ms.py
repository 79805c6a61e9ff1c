"""A value of another type that a student's MindSpore code returns is refused with its line."""

from __future__ import annotations

from pathlib import Path

from dualml.course.check import check
from dualml.course.exercise import Trouble
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_skeleton

EXERCISE = find_exercise("aggregate_ms")[1]
BODIES = {
    "by_all_reduce": "return [t.asnumpy() for t in tensors]",
    "by_gather_broadcast": "return [comm.gather(3)]",
    "average_parameters": "comm.all_reduce(tensors[0])",
    "ring_all_reduce": "tensor.sum(); raise NotImplementedError",
}


def write_student(path: Path) -> str:
    """Write a skeleton with these bodies and return it."""
    text = read_skeleton(EXERCISE, "lab2", "en")
    for name, body in BODIES.items():
        before, function, after = text.partition(f"def {name}(")
        text = before + function + after.replace("raise NotImplementedError", body, 1)
    text = text.replace("; raise NotImpl", "\n    raise NotImpl")
    path.write_text(text, "utf-8")
    return text


def test_a_value_of_another_type_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    lines = write_student(path).splitlines()
    wanted = ("reduce.alone", "gather.alone", "average.mean", "ring.alone", "measure.typical")
    checked = check(EXERCISE, path, 5, select=lambda r: r.name in wanted)
    found: dict[str, Trouble] = {j.requirement.name: j.trouble for j in checked.judgements}  # type: ignore[misc]

    def line_of(part: str) -> int:
        return next(n for n, line in enumerate(lines, 1) if part in line)

    said = {name: (trouble.kind, trouble.line) for name, trouble in found.items()}
    assert said == {
        "reduce.alone": ("returned", line_of("return [t.")),
        "gather.alone": ("TypeError", line_of("comm.gather(3)")),
        "average.mean": ("returned", line_of("def average_parameters(")),
        "ring.alone": ("unfinished", line_of("tensor.sum()") + 1),
        "measure.typical": ("unwritten", found["measure.typical"].line),
    }
    assert "numpy.ndarray (3, 2) → Tensor" in found["reduce.alone"].message
    assert "comm takes tensors; received int" in found["gather.alone"].message
    assert "None → list of Tensor" in found["average.mean"].message
