"""Assign every test to a tier, and every file its measured seconds.

``make test`` runs the tier ``test``, ``make test-matrix`` the tiers ``matrix`` and ``pynative``, of
which the latter runs without compiled graphs; tests of the tier ``slow`` run with ``--slow`` alone.
`tiers.toml` names exceptions and their reasons. The seconds of `durations.toml` put the longest
files first, so that no process waits for the last one of another.

    python -m tests.tiers [--update]    seconds recorded in build/durations, by part and file

Every session that has ``--record FILE`` adds its seconds to that folder; ``--update`` writes them
to `durations.toml`.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "build/durations"
TIERS = ("test", "matrix", "pynative", "slow")
#: Marks of tests that start processes, servers or whole commands: `make test` runs those that
#: `tiers.toml` names as representatives.
PROCESSES = frozenset({"system", "whole"})
#: Seconds of a file that nobody has measured.
UNKNOWN_S = 5.0


@dataclass(frozen=True)
class Entry:
    """An exception of `tiers.toml`.

    Attributes:
        key: ``PATH[::TEST][ PARAMETERS]``: a folder, file or test; with parameters, only tests
            whose id in brackets has them, one or several beside one another, between dashes.
        tier: the tier of these tests.
        reason: why they are there.
    """

    key: str
    tier: str
    reason: str

    @cached_property
    def place(self) -> str:
        """The folder, file or test."""
        return self.key.partition(" ")[0]

    @cached_property
    def parameter(self) -> str:
        """The parameter; empty without one."""
        return self.key.partition(" ")[2]

    def matches(self, node: str) -> bool:
        """Return whether a test, named by its pytest id, is meant."""
        if not node.startswith(self.place):
            return False
        name, _, values = node.partition("[")
        inside = name == self.place or name.startswith((f"{self.place}/", f"{self.place}::"))
        return inside and (
            not self.parameter or f"-{self.parameter}-" in f"-{values.removesuffix(']')}-"
        )


def read_entries(path: Path = HERE / "tiers.toml") -> list[Entry]:
    """Return all entries, the most specific first."""
    listed = tomllib.loads(path.read_text("utf-8"))
    entries = [Entry(key, tier, why) for tier in TIERS for key, why in listed[tier].items()]
    return sorted(entries, key=lambda entry: -len(entry.key))


def tier_of(node: str, marks: Iterable[str], entries: Iterable[Entry]) -> str:
    """Return the tier of a test.

    Args:
        node: its pytest id.
        marks: the names of its marks.
        entries: exceptions, the most specific first.
    """
    if "slow" in (known := set(marks)):
        return "slow"
    for entry in entries:
        if entry.matches(node):
            return entry.tier
    return "matrix" if known & PROCESSES else "test"


def tiers_of_file(file: str, parameter: str, entries: Iterable[Entry]) -> set[str]:
    """Return the tiers of a file's tests that have a parameter and no marks, as in the conformance
    suite. Some of them may be named by more parameters than this one."""

    def of_some(entry: Entry) -> bool:
        if entry.place == file:
            return entry.parameter != parameter and parameter in entry.parameter.split("-")
        inside = entry.place.startswith(f"{file}::")
        return inside and (not entry.parameter or parameter in entry.parameter.split("-"))

    whole = tier_of(f"{file}::[{parameter}]", (), entries)
    return {whole, *(entry.tier for entry in entries if of_some(entry))}


def chosen_tiers(tier: str | None, slow: bool) -> set[str]:
    """Return the tiers that a session runs. In ``make test``, ``--slow`` adds no tests, but runs
    whole labs and all cases; in the matrix it adds the slow tests, and compiles what otherwise runs
    in PyNative mode."""
    if tier in ("test", "pynative"):
        return {tier}
    chosen = {tier} if tier else {"test", "matrix", "pynative"}
    return chosen | {"pynative", "slow"} if slow else chosen


def read_durations(path: Path = HERE / "durations.toml") -> dict[str, float]:
    """Return the measured seconds of files; a file of the conformance suite has one entry for each
    backend, ``PATH BACKEND``."""
    return {name: float(s) for name, s in tomllib.loads(path.read_text("utf-8")).items()}


def longest_first(files: Iterable[str], backend: str, durations: Mapping[str, float]) -> list[str]:
    """Return the files in the order in which a session takes them."""

    def seconds(file: str) -> float:
        return durations.get(f"{file} {backend}", durations.get(file, UNKNOWN_S))

    return sorted(dict.fromkeys(files), key=lambda file: (-seconds(file), file))


def recorded(folder: Path = RECORDED) -> dict[str, dict[str, float]]:
    """Return part → file → seconds of the sessions that were recorded."""
    return {
        path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tiers")
    parser.add_argument("--update", action="store_true", help="write durations.toml")
    parser.add_argument("--longest", type=int, default=12, help="files to list of each part")
    asked = parser.parse_args()
    totals: Counter[str] = Counter()
    for part, files in recorded().items():
        print(f"{part}: {sum(files.values()):.0f} s in {len(files)} files")
        for file, seconds in Counter(files).most_common(asked.longest):
            print(f"  {seconds:7.1f} s  {file}")
        totals |= Counter(files)  # the longest of several sessions
    if asked.update:
        known = {**read_durations(), **totals}
        lines = [f'"{name}" = {seconds:.1f}' for name, seconds in sorted(known.items())]
        head = "# Seconds of test files, written by `python -m tests.tiers --update`.\n"
        (HERE / "durations.toml").write_text(head + "\n".join(lines) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
