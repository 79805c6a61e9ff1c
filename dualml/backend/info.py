"""Facts that the parent process knows of backends, and the discovery of backends.

A backend package registers a lightweight function under the entry-point group ``dualml.backends``.
It returns a `BackendInfo` without importing the framework, so that the parent process, which plans,
launches and reports, never does. The `Backend` itself is created inside a worker process.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from dualml.backend.training import Backend
from dualml.common.errors import UserError, did_you_mean

GROUP = "dualml.backends"


@dataclass(frozen=True)
class ExternalLaunch:
    """Description of an external launch: this process was started as a rank by a framework's
    launcher or by the user's options.

    Attributes:
        launcher: name of the launcher.
        backend: the backend whose launcher it is; empty: the ranks may be of any backend.
        rank, size: this rank and the number of ranks; rank −1 is a process that only helps the
            ranks find one another.
        sessions: groups of ranks that its rendezvous can serve one after the other; 0: any number.
        helper: command of the process that only helps.
        start: identifies one start of the command where the launcher restarts its ranks.
    """

    launcher: str
    backend: str
    rank: int
    size: int
    sessions: int = 0
    helper: Sequence[str] = ()
    start: str = ""


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks.

    Attributes:
        command: function of the number of ranks, the module that each rank runs and its arguments →
            command line.
        environ: additional environment variables.
        package: package that provides it, where that is not the framework; ``install`` is the
            command that installs it.
        rendezvous: how its ranks find one another.
    """

    command: Callable[[int, str, Sequence[str]], list[str]]
    environ: Mapping[str, str] = field(default_factory=dict)
    package: str = ""
    install: str = ""
    rendezvous: str = "env://"

    def missing_reason(self) -> str | None:
        """Return that ``package`` is not installed, with the command that installs it; None if it
        is, or if the launcher comes with the framework."""
        if not self.package or importlib.util.find_spec(self.package) is not None:
            return None
        return f"{self.package} is not installed; install it with: {self.install}"


@dataclass(frozen=True)
class BackendInfo:
    """Facts about a backend that the parent process may use without importing the framework.

    Args:
        name: its name on the command line (``torch``).
        framework: the module whose presence decides whether the backend is installed.
        install: the command that installs the framework.
        factory: ``"package.module:Class"``, resolved in the worker.
        environ: environment variables a worker needs *before* the import, from the number of
            threads; `Backend.environment` records those that decide numbers or speed.
        ranks: what the ranks of a trial are: ``processes`` that its `Backend` joins into a group
            (`ProcessGroups`), ``threads`` of one process, or ``none``, where a trial can only have
            one rank.
        preload: modules whose import takes long and computes nothing: workers are forked from a
            process that has them. Empty where the framework does not survive a fork.
        adopted: returns how the framework's own launcher started this process; None where another
            program did.
        launchers: launchers that can start its ranks, by name; see `dualml.launch.launchers`.
        crowded: whether it runs more threads than it computes with; see `dualml.common.cores`.
        modes: modes in which a user's model can run; the first compiles nothing.
    """

    name: str
    framework: str
    install: str
    factory: str
    environ: Callable[[int], dict[str, str]] = lambda threads: {}
    ranks: Literal["processes", "threads", "none"] = "none"
    preload: Sequence[str] = ()
    adopted: Callable[[], ExternalLaunch | None] = lambda: None
    launchers: Mapping[str, Launcher] = field(default_factory=dict)
    crowded: bool = False
    modes: Sequence[str] = ()

    def installed(self) -> bool:
        """Return whether the framework is installed, without importing it."""
        spec = importlib.util.find_spec(self.framework)
        return spec is not None and spec.origin is not None  # a bare folder of that name is none

    def create(self, device: str = "auto", threads: int = 0) -> Backend:
        """Import the framework and return the backend.

        Args:
            device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``npu``.
            threads: number of threads to compute with; 0: the framework's choice.

        Raises:
            UserError, Unsupported: a device that the backend does not know, or cannot use here.
        """
        module, _, attribute = self.factory.partition(":")
        backend: Backend = getattr(importlib.import_module(module), attribute)(device, threads)
        return backend

    @property
    def package(self) -> str:
        """Name of the package that has its other modules, such as ``doctor`` and
        ``conformance``."""
        return self.factory.partition(":")[0].rpartition(".")[0]


def find_entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of all registered backends by name, in the order numpy, torch,
    mindspore, others."""
    rank = {"numpy": 0, "torch": 1, "mindspore": 2}
    points = {point.name: point for point in entry_points(group=GROUP)}
    return {name: points[name] for name in sorted(points, key=lambda n: (rank.get(n, 9), n))}


def backend_names() -> list[str]:
    """Return the names of all registered backends, installed or not, in the order of
    `find_entry_points`; no backend's package is imported."""
    return list(find_entry_points())


def backends() -> dict[str, BackendInfo]:
    """Return all registered backends by name, installed or not, in the order of
    `find_entry_points`."""
    return {name: point.load()() for name, point in find_entry_points().items()}


def select_backends(word: str | None) -> list[BackendInfo]:
    """Return the backends that a ``--backend`` argument selects, each once; None selects every
    installed framework, without the reference ``numpy``.

    Raises:
        UserError: an unknown name, a backend whose framework is not installed, or for None no
            installed framework at all.
    """
    known = backends()
    if word is None:
        chosen = [info for name, info in known.items() if name != "numpy" and info.installed()]
        if not chosen:
            hint = " or ".join(i.install for n, i in known.items() if n in ("torch", "mindspore"))
            raise UserError(
                f"no framework is installed; install one with {hint}, or use --backend numpy"
            )
        return chosen
    names = parse_backend_names(word)
    for name in names:
        if not known[name].installed():
            raise UserError(
                f"backend {name!r} is not installed; install it with: {known[name].install}"
            )
    return [known[name] for name in names]


def parse_backend_names(word: str) -> list[str]:
    """Return the backend names in a comma-separated ``--backend`` argument, each once, installed or
    not; ``both`` stands for torch and mindspore, ``all`` for every registered backend.

    Raises:
        UserError: an unknown name.
    """
    known = list(backends())
    groups = {"both": ["torch", "mindspore"], "all": known}
    names: list[str] = []
    for part in word.split(","):
        names += groups.get(part.strip(), [part.strip()])
    for name in names:
        if name not in known:
            raise UserError(f"unknown backend {name!r}{did_you_mean(name, [*known, *groups])}")
    return list(dict.fromkeys(names))
