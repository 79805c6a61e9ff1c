"""Set up every test session: the right frameworks, a private cache, MindSpore's fast convolutions.

``DUALML_REQUIRE`` and ``DUALML_ABSENT`` (comma lists of modules, and ``chromium``) say what must
and must not be installed. A session in the wrong environment stops instead of skipping tests and
passing.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiers

HERE = Path(__file__).resolve().parent
# With this folder on the path, where pytest puts it, tests/torch would pass for a package `torch`.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
conformance = ModuleType("conformance")
conformance.__path__ = [str(HERE / "conformance")]
sys.modules["conformance"] = conformance

#: Variable in which tox names its environment.
TOX_ENV = "TOX_ENV_NAME"
ISOLATED = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def env_names(variable: str) -> list[str]:
    return [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]


def installed(name: str) -> bool:
    """Return whether a module is installed, or ``chromium`` with its driver."""
    if name == "chromium":
        return bool(shutil.which("chromium") and shutil.which("chromedriver"))
    return importlib.util.find_spec(name) is not None


def wrong_frameworks() -> list[str]:
    """Return sentences that name missing and unwanted modules."""
    missing = [name for name in env_names("DUALML_REQUIRE") if not installed(name)]
    extra = [name for name in env_names("DUALML_ABSENT") if installed(name)]
    return [f"DUALML_REQUIRE names {name}, which is not installed" for name in missing] + [
        f"DUALML_ABSENT names {name}, which is installed" for name in extra
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run also what is marked slow(reason)")
    parser.addoption("--tier", choices=tiers.TIERS[:-1], help="run this tier only (tests/tiers.py)")
    parser.addoption("--record", metavar="FILE", help="write the seconds of every test file here")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen tiers, and take the longest files first."""
    for item in items:
        for mark in item.iter_markers("slow"):
            if [type(word) for word in mark.args] != [str]:
                raise pytest.UsageError(f"{item.nodeid}: slow needs one argument, the reason")
    entries = tiers.read_entries()
    chosen = tiers.chosen_tiers(config.getoption("--tier"), config.getoption("--slow"))
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        marks = [mark.name for mark in item.iter_markers()]
        selected = tiers.tier_of(item.nodeid, marks, entries) in chosen
        (kept if selected and not judged_elsewhere(item) else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
    files = [item.nodeid.partition("::")[0] for item in kept]
    backend = os.environ.get("DUALML_CONFORMANCE", "").rpartition(",")[2]
    order = {
        f: i for i, f in enumerate(tiers.longest_first(files, backend, tiers.read_durations()))
    }
    items[:] = [
        i for _, i in sorted(zip(files, kept, strict=True), key=lambda pair: order[pair[0]])
    ]
    if config.pluginmanager.hasplugin("rerunfailures"):
        rerun_flaky(items)


def judged_elsewhere(item: pytest.Item) -> bool:
    """Return whether this is a test of the conformance suite itself, which needs no framework and
    runs where the reference is judged."""
    chosen = env_names("DUALML_CONFORMANCE")
    account = item.config.pluginmanager.getplugin("account")
    if account is None or not chosen or "numpy" in chosen or item.path.parent.name != "conformance":
        return False
    return not account.backends_of(item)


def rerun_flaky(items: list[pytest.Item]) -> None:
    """Rerun failed system and whole-run tests once, because busy machines cause timeouts; the first
    failure appears in the summary as RERUN."""
    for item in items:
        if item.get_closest_marker("system") or item.get_closest_marker("whole"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Kill the processes that a test has started itself and left, whichever way it ends."""
    started: list[subprocess.Popen[Any]] = []
    usual = subprocess.Popen.__init__

    def note(self: subprocess.Popen[Any], *args: Any, **options: Any) -> None:
        usual(self, *args, **options)
        if Path(sys._getframe(1).f_code.co_filename).is_relative_to(HERE):
            started.append(self)

    subprocess.Popen.__init__ = note  # type: ignore[method-assign]
    try:
        return (yield)
    finally:
        subprocess.Popen.__init__ = usual  # type: ignore[method-assign]
        for process in started:
            kill_group(process)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process, and the group that it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it leads none
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)


def pytest_collection_finish() -> None:
    gc.freeze()  # MindSpore collects garbage before each compilation, of all that is loaded


def patient() -> None:
    """Disable hypothesis deadlines: on a busy machine a slow example is no failure."""
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow]
    settings.register_profile("patient", deadline=None, suppress_health_check=slow)
    settings.load_profile("patient")


def keep_named_tests(config: pytest.Config) -> None:
    """Under tox, run only the tests that are named by ID, if any: tox.ini adds whole folders."""
    if TOX_ENV in os.environ and (named := [name for name in config.args if "::" in name]):
        config.args[:] = named


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print where each test failed, and the command that runs it alone."""
    failed = {
        report.nodeid: report
        for outcome in ("failed", "error")
        for report in terminalreporter.getreports(outcome)
    }
    if failed:
        terminalreporter.section("failures, one by one")
    for name, report in failed.items():
        command = single_test_command(name, config)
        terminalreporter.write_line(f"{failure_location(report)}: to run it alone: {command}")


def failure_location(report: Any) -> str:
    """Return ``file:line`` of the error, or of the test where the error has no place."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return f"{relative_to_here(crash.path)}:{crash.lineno}"
    file, line, _ = report.location
    return f"{file}" if line is None else f"{file}:{line + 1}"


def single_test_command(name: str, config: pytest.Config) -> str:
    """Return the command that runs one test in the environment of this session."""
    words = [name, *["--slow"] * bool(config.getoption("--slow"))]
    if env := os.environ.get(TOX_ENV):
        return shlex.join(["tox", "run", "-e", env, "--", *words])
    return shlex.join([relative_to_here(sys.executable), "-m", "pytest", *words])


def relative_to_here(path: str) -> str:
    """Return a path relative to the current folder, if it is inside."""
    inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd())) if inside else path


def pytest_configure(config: pytest.Config) -> None:
    keep_named_tests(config)
    if importlib.util.find_spec("hypothesis"):
        patient()
    if wrong := wrong_frameworks():
        pytest.exit("; ".join(wrong), returncode=4)
    if importlib.util.find_spec("dualml"):
        register_account(config)
    if config.getoption("--slow"):
        os.environ["DUALML_TEST_ALL_CASES"] = "1"  # conformance/covering.py
    if config.getoption("--tier") == "pynative":
        os.environ["DUALML_MINDSPORE_MODE"] = "pynative"  # dualml_ms/common/environment.py
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(config.getoption("--record"))), "recorder")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what it puts aside
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what the tests start inherits it
    # What the tests start runs the code that they import, installed or not.
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("DUALML_CONFIG", "none")  # nobody's defaults
    if "DUALML_CACHE" not in os.environ:  # never the user's own
        config.stash[ISOLATED] = tempfile.TemporaryDirectory(prefix="dualml-cache-")
        os.environ["DUALML_CACHE"] = config.stash[ISOLATED].name
        keep_graphs(Path(config.stash[ISOLATED].name))
    if importlib.util.find_spec("mindspore"):
        from dualml_ms.common.environ import environ

        # Read when MindSpore is imported, in this process and in those the tests start.
        for name in ("GLOG_v", "MS_SUBMODULE_LOG_v", "ONEDNN_MAX_CPU_ISA"):
            if name in (found := environ(1)):
                os.environ.setdefault(name, found[name])


class Recorder:
    """Plugin that sums the seconds of every file's tests and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self.path, self.seconds = path.absolute(), dict[str, float]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        chosen = env_names("DUALML_CONFORMANCE")
        name = f"{file} {chosen[-1]}" if chosen and "/conformance/" in file else file
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.seconds, indent=1), "utf-8")


def register_account(config: pytest.Config) -> None:
    """Let the session say what the conformance suite judged."""
    from conformance.account import Account, suite_files

    from dualml.backend import backends

    config.pluginmanager.register(Account(backends(), suite_files()), "account")


def keep_graphs(cache: Path) -> None:
    """Keep MindSpore's compiled graphs for the next session, in `build/`: they are found again by
    all code that they are made of (`dualml_ms.common.fingerprint`)."""
    if not importlib.util.find_spec("mindspore"):
        return
    kept = HERE.parent / "build" / f"mindspore-graphs-{version('mindspore')}"
    kept.mkdir(parents=True, exist_ok=True)
    (cache / kept.name).symlink_to(kept)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (isolated := config.stash.get(ISOLATED, None)) is not None:
        os.environ.pop("DUALML_CACHE", None)
        isolated.cleanup()


@pytest.fixture
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Remove all environment variables that dualml or a framework reads."""
    for name in list(os.environ):
        if name.startswith(("DUALML_", "OMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "GLOG_", "CUBLAS_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    return monkeypatch
