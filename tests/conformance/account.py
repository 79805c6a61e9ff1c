"""Account of what the conformance suite judged: which backend in which file, and what was skipped.

`tests/conftest.py` registers it as a plugin of pytest. Every session prints the account. Where
``DUALML_JUDGE_ALL`` is set, as in ``make test`` and in the environments of tox that run the suite,
the session fails unless the account is the one that `judged.toml` lists for the files of its tier
(`tests/tiers.py`): a backend that is no longer judged, a file without a test of it, or a test that
is skipped for a new reason.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tiers import chosen_tiers, read_entries, tiers_of_file

HERE = Path(__file__).resolve().parent
PROPERTY = "judged"


@dataclass
class Judged:
    """Results of one backend.

    Attributes:
        passed: file → number of tests that passed.
        skipped: file → reasons of the tests that were skipped.
    """

    passed: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, set[str]] = field(default_factory=dict)

    def differences(
        self, wanted: Mapping[str, Any], files: Iterable[str], partial: Iterable[str] = ()
    ) -> Iterator[str]:
        """Yield what is not as listed.

        Args:
            wanted: ``no_tests``, the files without a test of this backend, and ``skipped``, file →
                reasons.
            files: the files of the suite that this session runs.
            partial: those of them of which another session runs the rest.
        """
        without = set(files) - set(self.passed)
        for name in sorted(without - set(wanted["no_tests"])):
            yield f"no test in {name} passed"
        for name in sorted(set(wanted["no_tests"]) & set(self.passed)):
            yield f"{name} has tests, and judged.toml says that it has none"
        for name in sorted(files):
            found, listed = self.skipped.get(name, set()), set(wanted["skipped"].get(name, ()))
            for reason in sorted(found - listed):
                yield f"skipped in {name}, and judged.toml does not say so: {reason}"
            for reason in sorted(listed - found) if name not in set(partial) else ():
                yield f"judged.toml says that {name} skips something, and it did not: {reason}"


def flatten(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, and those inside of tuples and lists."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from flatten(value)
        else:
            yield value


class Account:
    """Plugin that collects the results of every backend."""

    def __init__(self, backends: Iterable[str], files: Iterable[str]) -> None:
        self.backends, self.files = frozenset(backends), frozenset(files)
        self.judged: dict[str, Judged] = {}
        self.faults: list[str] = []

    def backends_of(self, item: pytest.Item) -> list[str]:
        """Return the backends that a test of the suite names among its parameters."""
        callspec = getattr(item, "callspec", None)
        if item.path.parent != HERE or callspec is None:
            return []
        texts = {v for v in flatten(callspec.params.values()) if isinstance(v, str)}
        return sorted(texts & self.backends)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if judged := self.backends_of(item):
            item.user_properties.append((PROPERTY, judged))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = [name for key, value in report.user_properties if key == PROPERTY for name in value]
        for name in names:
            judged = self.judged.setdefault(name, Judged())
            if report.when == "call" and report.passed:
                file = Path(report.location[0]).name
                judged.passed[file] = judged.passed.get(file, 0) + 1
            elif report.skipped and isinstance(report.longrepr, tuple):
                reason = str(report.longrepr[2]).removeprefix("Skipped: ")
                judged.skipped.setdefault(Path(report.location[0]).name, set()).add(reason)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        chosen = session.config.option.keyword or session.config.option.collectonly
        chosen = chosen or any("::" in name for name in session.config.args)
        if hasattr(session.config, "workerinput") or chosen:
            return
        if os.environ.get("DUALML_JUDGE_ALL") and not session.exitstatus:
            option = session.config.option
            self.faults = list(self.compare(read_listed(), chosen_tiers(option.tier, option.slow)))
            if self.faults:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def compare(
        self, listed: Mapping[str, Mapping[str, Any]], chosen: Collection[str]
    ) -> Iterator[str]:
        """Yield what is not as `judged.toml` lists it, for the backends under test.

        Args:
            listed: backend → ``no_tests`` and ``skipped``.
            chosen: the tiers of this session.
        """
        from conformance.backends import tested_backends

        entries = read_entries()
        for name in tested_backends():
            found = self.judged.get(name, Judged())
            tiers = {
                file: tiers_of_file(f"tests/conformance/{file}", name, entries)
                for file in self.files
            }
            here = [file for file in tiers if tiers[file] & set(chosen)]
            partial = [file for file in here if tiers[file] - set(chosen)]
            for fault in found.differences(listed[name], here, partial):
                yield f"{name}: {fault}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for name, found in sorted(self.judged.items()):
            terminalreporter.write_line(
                f"judged {name}: {sum(found.passed.values())} tests in {len(found.passed)} of "
                f"{len(self.files)} files; skipped for {len(set().union(*found.skipped.values()))} "
                "reasons"
            )
        for fault in self.faults:
            terminalreporter.write_line(f"NOT JUDGED {fault}")


def read_listed() -> dict[str, dict[str, Any]]:
    """Return backend → ``no_tests`` and ``skipped``, as `judged.toml` lists them."""
    return tomllib.loads((HERE / "judged.toml").read_text("utf-8"))


def suite_files() -> list[str]:
    """Return the names of the files of the suite that have tests."""
    return sorted(path.name for path in HERE.glob("test_*.py"))
