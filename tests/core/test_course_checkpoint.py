"""The exercise on checkpoints, without a framework: rules, facts, catalogue, messages, pages."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from look_alikes import find_look_alikes

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.checkpoint.folder import LATE_UPDATES, UPDATES
from dualml.course.checkpoint.requirements import REQUIREMENTS
from dualml.course.checkpoint.rules import train_and_resume
from dualml.course.drive_checkpoint import simulate_full_disk
from dualml.course.exercise import Answer, Requirement, Trouble
from dualml.course.judge import judge
from dualml.course.labs import find_exercise, load_lab
from dualml.course.shared_folder import FolderCommunicator, SharedFolder, read_facts
from dualml.course.workspace import read_page, read_solution, read_translations

BY_NAME = {r.name: r for r in REQUIREMENTS}
RULES = [r for r in REQUIREMENTS if r.name not in ("checkpoint.writer", "checkpoint.atomic")]
FLAGS = list(dict.fromkeys(flag for r in RULES for flag in r.flags))
CALLS = [(r, call) for r in RULES for call in r.calls(np.random.default_rng(5))]
#: Mistakes that a fact or an error shows.
SHOWN = {
    "no_barrier", "barrier_early", "every_rank_writes", "wrong_rank_writes", "written_in_place",
    "failure_ignored", "old_removed_first", "temporary_copied", "temporary_elsewhere",
    "second_file", "barrier_one_sided", "collective_one_sided", "file_name_changed",
}  # fmt: skip
MISTAKES = {flag.partition("#")[0] for flag in FLAGS} | SHOWN
RIGHT_FACTS = {
    "removed": 0,
    "renamed": 1,
    "beside": 1,
    "left": 0,
    "there": 1,
    "waits": 1,
    "kept": 1,
}


def test_by_the_rule_a_resumed_training_is_the_one_that_went_on() -> None:
    for own in train_and_resume(CALLS[0][1].options, CALLS[0][1].arrays):
        for step in range(UPDATES + 1, UPDATES + LATE_UPDATES + 1):
            for name in ("weight", "bias", "shift"):
                assert np.array_equal(own[f"{step}/{name}"], own[f"whole/{step}/{name}"])


def test_mistakes_show_and_no_two_look_alike() -> None:
    assert find_look_alikes(CALLS, FLAGS) == []


def test_a_bit_that_rounding_would_allow_is_a_difference() -> None:
    requirement, call = next((r, c) for r, c in CALLS if r.name == "checkpoint.resume")
    arrays = [
        {key: np.asarray(a, np.float32) for key, a in own.items()}
        for own in train_and_resume(call.options, call.arrays)
    ]
    assert judge(requirement, [call], [Answer(arrays)]).status == "met"
    key = f"{UPDATES + 1}/weight"
    arrays[1][key] = np.nextafter(arrays[1][key], np.float32(9))
    judgement = judge(requirement, [call], [Answer(arrays)])
    assert judgement.mistakes == ("values_rounded",)
    assert judgement.difference is not None
    assert (judgement.difference.rank, judgement.difference.key) == (1, key)


def judged_facts(
    requirement: Requirement, facts: dict[int, dict[str, int]], full: bool = False
) -> Any:
    """Return the mistakes that these facts show; facts that are not given are right."""
    calls = requirement.calls(np.random.default_rng(5))
    call = next(c for c in calls if c.options["full"] == full)
    arrays = [
        {
            n: np.asarray(v)
            for n, v in {"written": int(not r), **RIGHT_FACTS, **facts.get(r, {})}.items()
        }
        for r in range(call.ranks)
    ]
    return judge(requirement, [call], [Answer(arrays)]).mistakes


@pytest.mark.parametrize(
    ("facts", "mistake"),
    [
        ({}, ()),
        ({1: {"there": 0, "waits": 0}}, ("no_barrier",)),
        ({2: {"there": 0, "waits": 1}}, ("barrier_early",)),
        ({1: {"written": 1}, 2: {"written": 1}}, ("every_rank_writes",)),
        ({1: {"written": 1}}, ("wrong_rank_writes",)),
        ({0: {"written": 0}, 2: {"written": 1}}, ("wrong_rank_writes",)),
        ({0: {"written": 0}}, ("first_checkpoint_kept",)),
    ],
)
def test_who_writes_and_who_waits(facts: Any, mistake: tuple[str, ...]) -> None:
    assert judged_facts(BY_NAME["checkpoint.writer"], facts) == mistake


@pytest.mark.parametrize(
    ("facts", "full", "mistake"),
    [
        ({}, False, ()),
        ({}, True, ()),
        ({0: {"kept": 0, "renamed": 0}}, True, ("written_in_place",)),
        ({0: {"kept": 0}}, True, ("failure_ignored",)),
        ({0: {"removed": 1}}, False, ("old_removed_first",)),
        ({0: {"renamed": 0}}, False, ("temporary_copied",)),
        ({0: {"beside": 0}}, False, ("temporary_elsewhere",)),
        ({0: {"left": 1}}, False, ("second_file",)),
        ({0: {"written": 0, "renamed": 0}}, False, ("first_checkpoint_kept",)),
        # Another rank writes, rightly but for that.
        ({0: {"written": 0, "renamed": 0}, 2: {"written": 1}}, False, ()),
    ],
)
def test_how_the_file_is_replaced(facts: Any, full: bool, mistake: tuple[str, ...]) -> None:
    assert judged_facts(BY_NAME["checkpoint.atomic"], facts, full) == mistake


@pytest.mark.parametrize(
    ("kind", "message", "mistake"),
    [
        ("CommunicationError", "the ranks disagree on collective number 3: rank 0: barrier; "
         "rank 1: all_gather int64 (1, 1, 1) op=sum root=0", "barrier_one_sided"),
        ("CommunicationError", "the ranks disagree on collective number 3: rank 0: all_gather "
         "int64 (1, 1, 1) op=sum root=0; rank 1: barrier", "barrier_one_sided"),
        ("CommunicationError", "the ranks disagree on collective number 3: rank 0: gather int32 "
         "(5056,) op=sum root=0; rank 1: barrier", "collective_one_sided"),
        ("CommunicationError", "rank 0 waited for gather int32 (5056,) op=sum root=0; missing: "
         "ranks 1, 2 of 3", "collective_one_sided"),
        ("FileNotFoundError", "[Errno 2] No such file or directory", "file_name_changed"),
        ("OSError", "[Errno 18] Invalid cross-device link", "temporary_elsewhere"),
    ],
)  # fmt: skip
def test_an_error_names_its_mistake(kind: str, message: str, mistake: str) -> None:
    for requirement in REQUIREMENTS:
        assert requirement.mistakes_of(Trouble(kind, message)) == (mistake,)
        assert requirement.mistakes_of(Trouble("RuntimeError", "something else")) == ()


class Ranks:
    """Ranks in threads, whose only collective is an all-gather."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size, self.parts = size, dict[int, Any]()
        self.meeting = threading.Barrier(size, timeout=10)
        self.homes = [folder / str(rank) for rank in range(size)]
        for home in self.homes:
            home.mkdir()

    def gather(self, rank: int, a: Any) -> list[Any]:
        self.parts[rank] = a
        self.meeting.wait()
        everything = [self.parts[r] for r in range(self.size)]
        self.meeting.wait()
        return everything

    def run(self, work: Any) -> list[Any]:
        """Call ``work(folder, rank)`` on every rank and return the results."""
        found: dict[int, Any] = {}

        def run_rank(rank: int) -> None:
            folder = SharedFolder(self.homes[rank], lambda a: self.gather(rank, a), rank)
            found[rank] = work(folder, rank)

        threads = [threading.Thread(target=run_rank, args=(r,)) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return [found[r] for r in range(self.size)]


def test_files_reach_other_ranks_at_the_next_wait(tmp_path: Path) -> None:
    def work(folder: SharedFolder, rank: int) -> tuple[bool, bytes, list[str], set[str]]:
        path = folder.path / "a"
        if rank == 0:
            path.write_bytes(bytes(range(256)) * 3)
            (folder.path / "gone").write_bytes(b"")
        before = path.is_file()
        folder.synchronize()
        seen = path.read_bytes()
        if rank == 1:
            (folder.path / "gone").unlink()
        folder.synchronize()
        return before, seen, sorted(folder.scan()), folder.written

    found = Ranks(tmp_path, 3).run(work)
    assert [before for before, *_ in found] == [True, False, False]
    assert all(seen == bytes(range(256)) * 3 for _, seen, *_ in found)
    assert all(names == ["a"] for *_, names, _ in found)
    assert [written for *_, written in found] == [{"a", "gone"}, {"gone"}, set()]


def test_of_several_writers_the_last_rank_counts(tmp_path: Path) -> None:
    def work(folder: SharedFolder, rank: int) -> bytes:
        (folder.path / "a").write_bytes(str(rank).encode())
        folder.synchronize()
        return (folder.path / "a").read_bytes()

    assert Ranks(tmp_path, 3).run(work) == [b"2", b"2", b"2"]


def test_a_communicator_brings_files_only_where_ranks_wait(tmp_path: Path) -> None:
    class Comm:
        rank, size = 0, 1
        barrier = gather = staticmethod(lambda *a: None)

    folder = SharedFolder(tmp_path, lambda a: [a], 0)
    comm = FolderCommunicator(Comm(), ("barrier", "gather"), folder)
    comm.gather(1)
    assert comm.waits == 0
    comm.barrier()
    assert comm.waits == 1
    with pytest.raises(AttributeError, match="it has rank, size, barrier, gather"):
        _ = comm.reduce


def test_facts_are_those_of_a_save(tmp_path: Path) -> None:
    folder, path = SharedFolder(tmp_path, lambda a: [a], 0), tmp_path / "last"
    path.write_bytes(b"old")
    folder.synchronize()

    def facts(save: Any) -> dict[str, int]:
        folder.begin()
        save()
        found = dict(read_facts(folder, path))
        folder.synchronize()
        return found

    def replace() -> None:
        (tmp_path / "t").write_bytes(b"new")
        os.replace(tmp_path / "t", path)

    right = {"written": 1, "renamed": 1, "beside": 1, "removed": 0, "left": 0}
    assert facts(replace) == right
    assert facts(lambda: None) == {**right, "written": 0, "renamed": 0}

    def remove_first() -> None:
        path.unlink()
        replace()

    assert facts(remove_first) == {**right, "removed": 1}

    def copy() -> None:
        (tmp_path / "t").write_bytes(b"newer")
        path.write_bytes(b"newer")

    assert facts(copy) == {**right, "renamed": 0, "left": 1}


def test_a_full_disk_ends_a_save_and_is_free_again(tmp_path: Path) -> None:
    with simulate_full_disk(), pytest.raises(OSError, match="large"):
        (tmp_path / "a").write_bytes(bytes(5000))
    (tmp_path / "a").write_bytes(bytes(5000))


def test_every_mistake_is_planted() -> None:
    planted = {(p.name, p.file) for p in load_plants("checkpoint") if not p.right}
    for one in load_lab("checkpoint").files:
        # A seed says nothing about NumPy's generator, which does not tell it.
        hidden = {"random_begins_again"} if one.backend == "mindspore" else set()
        assert {name for name, file in planted if file == one.name} == MISTAKES - hidden
        assert len([p for p in load_plants("checkpoint") if p.right and p.file == one.name]) >= 5
    for plant in load_plants("checkpoint"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_checkpoint")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{name}.{depth}" for name in MISTAKES for depth in depths}
    state = train_and_resume(CALLS[0][1].options, CALLS[0][1].arrays)[0]
    shown = [k for k in state if k.startswith(("loaded/", "saved/", "progress/"))]
    names = {"written", *RIGHT_FACTS, *(key.replace("/", "_") for key in shown)} - {"waits"}
    facts = {f"course.fact.{name}" for name in names}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS} | facts
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement(lang: str) -> None:
    task = read_page("checkpoint", "checkpoint", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip()
        for one in load_lab("checkpoint").files
        for line in read_solution(one).splitlines()
    }
    assert read_translations("checkpoint").keys() <= there
