"""Check of one file of a student: run the requirements' calls and judge the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dualml.common.seeds import make_generator
from dualml.course.exercise import (
    RIGHT,
    Answer,
    ExerciseCall,
    ExerciseFile,
    Flags,
    Requirement,
    Trouble,
)
from dualml.course.isolation.client import find_isolation
from dualml.course.isolation.detect import Isolation
from dualml.course.judge import Judgement, judge
from dualml.course.sandbox import CALL_S, Sandbox
from dualml.course.search_work import SearchWork
from dualml.course.source import Problem, examine
from dualml.course.unifying import unify_mistakes


@dataclass(frozen=True)
class CheckResult:
    """Result of the check of one file.

    Attributes:
        problems: problems found without running the file.
        judgements: judgement of each requirement, in their order.
        seed: seed of all random draws.
        printed: end of the output of the student's code.
    """

    file: ExerciseFile
    path: Path
    problems: Sequence[Problem]
    judgements: Sequence[Judgement]
    seed: int
    printed: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether every judgement is ``met`` (``not judged`` counts as not met) and the file has no
        grave problem."""
        well = all(j.status == "met" for j in self.judgements)
        return well and not any(p.is_grave for p in self.problems)

    @property
    def is_begun(self) -> bool:
        """Whether the status of at least one requirement is not ``unwritten``; ``not judged``
        counts as begun."""
        return any(j.status != "unwritten" for j in self.judgements)


def passes_check(checked: Sequence[CheckResult]) -> bool:
    """Return whether the student has begun at least one file (`CheckResult.is_begun`) and all begun
    files pass. Files that are as they were made, such as those of the other framework, do not
    count."""
    begun = [each for each in checked if each.is_begun]
    return bool(begun) and all(each.is_passed for each in begun)


def report_missing_framework(
    file: ExerciseFile, path: Path, seed: int, command: str
) -> CheckResult:
    """Make the result of a file whose framework is not installed: no requirement is judged;
    ``command`` installs the framework."""
    judgements = [Judgement(requirement, "not judged") for requirement in file.requirements]
    return CheckResult(file, path, [Problem("not_installed", command)], judgements, seed)


@dataclass(frozen=True)
class CheckWatcher:
    """Functions that follow a running check.

    Args:
        on_progress: called with the number of finished calls and of all calls.
        is_cancelled: returns whether nobody waits for the result any more; the result is then
            meaningless.
    """

    on_progress: Callable[[int, int], None] = lambda done, total: None
    is_cancelled: Callable[[], bool] = lambda: False


UNWATCHED = CheckWatcher()


def check(
    file: ExerciseFile,
    path: Path,
    seed: int,
    *,
    select: Callable[[Requirement], bool] = lambda requirement: True,
    seconds: float = CALL_S,
    watcher: CheckWatcher = UNWATCHED,
    isolation: Isolation | None = None,
) -> CheckResult:
    """Run a student's file on random inputs and judge its answers. A file with a fatal problem is
    not run, and no requirement is judged.

    Args:
        file: the exercise.
        path: the student's file.
        seed: seed of all random inputs.
        select: function that selects the requirements to check.
        seconds: time limit of one call.
        watcher: who is told of the progress, and may cancel.
        isolation: isolation of the student's code; None: the best one that the machine supports.

    Raises:
        MachineFault: the machine is at fault, not the student.
    """
    wanted = [r for r in file.requirements if select(r)]
    problems = examine(path, file)
    if any(p.is_fatal for p in problems):
        skipped = [Judgement(r, "not judged") for r in wanted]
        return CheckResult(file, path, problems, skipped, seed)
    absent = {p.target for p in problems if p.kind == "missing"}
    asked = [
        (r, call)
        for r in wanted
        if r.target not in absent
        for call in r.calls(make_generator(seed, "exercise", r.name))
    ]
    count = [0]

    def report_progress() -> None:
        """Report one more finished call."""
        count[0] = min(count[0] + 1, len(asked))  # some are asked twice
        watcher.on_progress(count[0], len(asked))

    around = isolation or find_isolation(file.backend)
    sandbox = Sandbox(file, path, seconds, watcher.is_cancelled, around)
    answers = sandbox.answers([call for _, call in asked], report_progress)
    answered = list(zip(asked, answers, strict=True))
    judgements = unify_mistakes(list(judge_requirements(file, wanted, answered, absent)), answered)
    retry_disturbed(judgements, asked, sandbox)
    return CheckResult(file, path, problems, judgements, seed, sandbox.printed)


def retry_disturbed(
    judgements: list[Judgement], asked: Sequence[tuple[Requirement, ExerciseCall]], sandbox: Sandbox
) -> None:
    """Repeat the calls of requirements that are not met by a difference in numbers, which a busy
    machine may have caused, and replace their judgements in place, until the requirement is met,
    the same mistake is found twice in succession, or the requirement's `tries` are used up."""
    believed: set[int] = set()
    for tried in range(1, max((j.requirement.tries for j in judgements), default=1)):
        doubted = [
            n
            for n, j in enumerate(judgements)
            if j.status == "not met" and j.difference is not None
            if tried < j.requirement.tries and n not in believed
        ]
        calls = [call for n in doubted for r, call in asked if r is judgements[n].requirement]
        answers = iter(sandbox.answers(calls) if calls else ())
        for n in doubted:
            before = judgements[n]
            own = [call for r, call in asked if r is before.requirement]
            earlier = (
                j.flags for j in judgements[:n] if j.requirement.target == before.requirement.target
            )
            likely = RIGHT.union(*earlier)
            judgements[n] = judge(before.requirement, own, [next(answers) for _ in own], likely)
            if before.mistakes and before.mistakes == judgements[n].mistakes:
                believed.add(n)


def judge_requirements(
    file: ExerciseFile,
    wanted: Sequence[Requirement],
    answered: Sequence[tuple[tuple[Requirement, ExerciseCall], Answer]],
    absent: set[str],
) -> Iterator[Judgement]:
    """Yield the judgement of each requirement in ``wanted``; one whose target is ``absent`` is not
    met. Mistakes found earlier are tried first in later requirements of the same target.

    A requirement with an ``otherwise`` whose numbers differ gets that as its mistake, if the target
    meets all of its requirements without one, and no mistake of ``only_there`` was found.

    Args:
        file: the exercise.
        answered: each call with its requirement, and the answer to it.
        absent: classes and functions that the student's file lacks.
    """
    likely: dict[str, Flags] = {}
    work: dict[str, SearchWork] = {}
    met: set[str] = set()
    for requirement in wanted:
        own = [(call, answer) for (r, call), answer in answered if r is requirement]
        if requirement.target in absent:
            yield Judgement(requirement, "not met", Trouble("missing", requirement.target))
            continue
        calls = [call for call, _ in own]
        answers = [answer for _, answer in own]
        before = likely.get(requirement.target, RIGHT)
        other = [f for r in file.requirements if r.target == requirement.target for f in r.flags]
        searched = work.setdefault(requirement.target, SearchWork())
        others = list(dict.fromkeys(other))
        judgement = judge(requirement, calls, answers, before, others, searched)
        likely[requirement.target] = before | judgement.flags
        if judgement.status == "met":
            met.add(requirement.name)
        elif requirement.otherwise and judgement.difference is not None:
            beside = [
                r.name
                for r in file.requirements
                if r.target == requirement.target and not r.otherwise
            ]
            alone = requirement.only_there & set(judgement.mistakes)
            if met.issuperset(beside) and not alone:
                judgement = replace(judgement, mistakes=(requirement.otherwise,))
        yield judgement
