"""Account of what the conformance suite judged: which backend in which file, and what was skipped.

`tests/conftest.py` registers it as a plugin of pytest. Every session prints the account. Where
``DUALML_JUDGE_ALL`` is set, as in the environments of tox that run the suite, the session fails
unless the account is the one that `judged.toml` lists: a backend that is no longer judged, a file
without a test of it, or a test that is skipped for a new reason.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PROPERTY = "judged"


@dataclass
class Judged:
    """Results of one backend.

    Attributes:
        passed: file → number of tests that passed.
        skipped: reasons of the tests that were skipped.
    """

    passed: dict[str, int] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)

    def differences(self, wanted: Mapping[str, list[str]], files: Iterable[str]) -> Iterator[str]:
        """Yield what is not as listed.

        Args:
            wanted: ``no_tests``, the files without a test of this backend, and ``skipped``, the
                reasons.
            files: every file of the suite.
        """
        without = set(files) - set(self.passed)
        for name in sorted(without - set(wanted["no_tests"])):
            yield f"no test in {name} passed"
        for name in sorted(set(wanted["no_tests"]) - without):
            yield f"{name} has tests, and judged.toml says that it has none"
        for reason in sorted(self.skipped - set(wanted["skipped"])):
            yield f"skipped, and judged.toml does not say so: {reason}"
        for reason in sorted(set(wanted["skipped"]) - self.skipped):
            yield f"judged.toml says that something is skipped, and nothing was: {reason}"


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

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.path.parent == HERE and (callspec := getattr(item, "callspec", None)):
            texts = {v for v in flatten(callspec.params.values()) if isinstance(v, str)}
            item.user_properties.append((PROPERTY, sorted(texts & self.backends)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = [name for key, value in report.user_properties if key == PROPERTY for name in value]
        for name in names:
            judged = self.judged.setdefault(name, Judged())
            if report.when == "call" and report.passed:
                file = Path(report.location[0]).name
                judged.passed[file] = judged.passed.get(file, 0) + 1
            elif report.skipped and isinstance(report.longrepr, tuple):
                judged.skipped.add(str(report.longrepr[2]).removeprefix("Skipped: "))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        chosen = session.config.option.keyword or session.config.option.collectonly
        chosen = chosen or any("::" in name for name in session.config.args)
        if hasattr(session.config, "workerinput") or chosen:
            return
        if os.environ.get("DUALML_JUDGE_ALL") and not session.exitstatus:
            self.faults = list(self.compare(read_listed()))
            if self.faults:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def compare(self, listed: Mapping[str, Mapping[str, list[str]]]) -> Iterator[str]:
        """Yield what is not as `judged.toml` lists it, for the backends under test."""
        from conformance.backends import tested_backends

        for name in tested_backends():
            found = self.judged.get(name, Judged())
            for fault in found.differences(listed[name], self.files):
                yield f"{name}: {fault}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for name, found in sorted(self.judged.items()):
            terminalreporter.write_line(
                f"judged {name}: {sum(found.passed.values())} tests in {len(found.passed)} of "
                f"{len(self.files)} files; skipped for {len(found.skipped)} reasons"
            )
        for fault in self.faults:
            terminalreporter.write_line(f"NOT JUDGED {fault}")


def read_listed() -> dict[str, dict[str, list[str]]]:
    """Return backend → ``no_tests`` and ``skipped``, as `judged.toml` lists them."""
    return tomllib.loads((HERE / "judged.toml").read_text("utf-8"))


def suite_files() -> list[str]:
    """Return the names of the files of the suite that have tests."""
    return sorted(path.name for path in HERE.glob("test_*.py"))
