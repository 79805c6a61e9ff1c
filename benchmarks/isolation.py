"""Measure the cost of isolating students' code, and the time until a check names a mistake.

    python benchmarks/isolation.py [--times 9] [--json FILE] [--docs docs]

Checks with and without the sandbox alternate in one process, with warm servers; results are medians
and the median ratio of pairs. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from dualml.course.check import check
from dualml.course.exercise import ExerciseFile
from dualml.course.grading.grade import grade
from dualml.course.grading.request import GradingRequest
from dualml.course.grading.rubric import Rubric
from dualml.course.grading.submissions import find_submissions
from dualml.course.isolation.detect import WALLS, Isolation
from dualml.course.labs import find_exercise, load_lab
from dualml.course.workspace import read_solution

OPEN = Isolation("none", "as asked for")
#: Number of students of a class, each with a right solution.
CLASS = 12
GATHER = "g = self.comm.reduce_scatter(gradient) / self.comm.size"
MEAN = "m.mul_(beta1).add_((1 - beta1) * g)"
#: Mistakes whose report is timed → file, line, and its replacement.
MISTAKES = {
    "a mistake without a name, lab 1": ("optim_torch", MEAN, MEAN.replace("* g)", "* g * 1.1)")),
    "an exception on one rank": ("zero_torch", GATHER, "if self.comm.rank: raise KeyError(0)"),
    "a deadlock: a rank that leaves": ("zero_torch", GATHER, "if self.comm.rank: return"),
    "a deadlock: ranks that ask for different things": (
        "zero_torch",
        GATHER,
        "if self.comm.rank: self.comm.all_gather(gradient)",
    ),
}


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that a function takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def pairs(times: int, work: Callable[[Isolation], Any]) -> dict[str, float]:
    """Return medians with and without isolation, in alternating rounds, and of the differences and
    ratios."""
    for around in (WALLS, OPEN):
        work(around)  # the servers start
    rows = [(timed(lambda: work(WALLS)), timed(lambda: work(OPEN))) for _ in range(times)]
    walled, bare = zip(*rows, strict=True)
    return {
        "walls_s": median(walled),
        "without_s": median(bare),
        "more_ms": 1e3 * median(a - b for a, b in rows),
        "ratio": median(a / b for a, b in rows),
    }


def one_check(folder: Path, exercise: ExerciseFile, around: Isolation) -> None:
    """Check a file of one student."""
    checked = check(exercise, folder / exercise.name, 5, isolation=around)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]


def one_class(folder: Path, around: Isolation) -> None:
    """Grade a class, two submissions at a time."""
    exercises = load_lab("lab1")
    files = [f for f in exercises.files if f.backend == "torch"]
    with tempfile.TemporaryDirectory() as out:
        request = GradingRequest(
            exercises, files, "secret", Rubric(), "en", Path(out), around, threading.Event()
        )
        found, _ = find_submissions(folder, Path(out))
        results = grade(request, found, 2)
    assert all(r["points"] == r["most"] for r in results.values())


def check_seconds(name: str, old: str, new: str) -> float:
    """Return the seconds that a check takes to report a mistake."""
    exercise, text = find_exercise(name)[1], read_solution(find_exercise(name)[1])
    assert text.count(old) == 1
    indent = text[: text.index(old)].rpartition("\n")[2]
    changed = new if old in (MEAN,) else f"{new}\n{indent}{old}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / exercise.name
        path.write_text(text.replace(old, changed), "utf-8")
        return timed(lambda: check(exercise, path, 5, isolation=WALLS))


def measure(times: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for name in ("optim_torch", "optim_ms"):
            exercise = find_exercise(name)[1]
            (home / exercise.name).write_text(read_solution(exercise), "utf-8")
            label = f"a check of lab 1, {exercise.backend}"
            found[label] = pairs(times, lambda around, e=exercise: one_check(home, e, around))
        exercise = find_exercise("optim_torch")[1]
        for student in range(CLASS):
            place = home / "class" / f"s{student:02d}"
            place.mkdir(parents=True)
            (place / exercise.name).write_text(read_solution(exercise), "utf-8")
        label = f"a class of {CLASS}, torch"
        found[label] = pairs(max(3, times // 3), lambda around: one_class(home / "class", around))
    return {
        "isolation": found,
        "told_s": {
            name: median(check_seconds(*how) for _ in range(3)) for name, how in MISTAKES.items()
        },
    }


#: Row texts, English → Chinese.
CHINESE = {
    "a check of lab 1, torch": "检查一次实验一，torch",
    "a check of lab 1, mindspore": "检查一次实验一，mindspore",
    f"a class of {CLASS}, torch": f"{CLASS} 人的班级，torch",
    "a mistake without a name, lab 1": "实验一中没有名称的错误",
    "an exception on one rank": "一个 rank 上的异常",
    "a deadlock: a rank that leaves": "死锁：一个 rank 提前返回",
    "a deadlock: ranks that ask for different things": "死锁：各 rank 的操作不一致",
}
HEADS = {
    "en": ("with walls", "without", "more", "ratio", "error", "reported after"),
    "zh": ("有隔离", "无隔离", "增加", "比值", "指出", "用时"),
}
BEGIN, END = "<!-- isolation: begin -->", "<!-- isolation: end -->"


def tables(found: dict[str, Any], lang: str) -> str:
    """Return the figures as Markdown."""
    walls, without, more, ratio, told_head, after = HEADS[lang]
    lines = [f"| | {walls} | {without} | {more} | {ratio} |", "|---|---:|---:|---:|---:|"]
    for name, row in found["isolation"].items():
        label = CHINESE[name] if lang == "zh" else name
        lines.append(
            f"| {label} | {row['walls_s']:.2f} s | {row['without_s']:.2f} s "
            f"| {row['more_ms']:.0f} ms | {row['ratio']:.2f} |"
        )
    lines += ["", f"| {told_head} | {after} |", "|---|---:|"]
    for name, seconds in found["told_s"].items():
        lines.append(f"| {CHINESE[name] if lang == 'zh' else name} | {seconds:.1f} s |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the tables of this folder's pages again")
    arguments = parser.parse_args()
    found = measure(arguments.times)
    print(tables(found, "en"))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    for lang, name in (("en", "benchmarks-robustness.md"), ("zh", "benchmarks-robustness.zh.md")):
        if arguments.docs:
            page = arguments.docs / name
            head, _, rest = page.read_text("utf-8").partition(f"{BEGIN}\n")
            tail = rest.partition(END)[2]
            page.write_text(f"{head}{BEGIN}\n{tables(found, lang)}{END}{tail}", "utf-8")


if __name__ == "__main__":
    main()
