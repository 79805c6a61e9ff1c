"""Registry of the training methods, without importing their engines."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from dualml.common.errors import Unsupported, UserError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """Facts about one method on one backend.

    Attributes:
        name: name of its file.
        title: name that its makers use.
        what: language → a short description.
        ranks: ``one`` process, ``several``, or ``any`` number.
        precision: precision of most of its arithmetic: ``fp32``, ``bf16``, ``fp16``.
        casts: language → where a low-precision method casts differently from dualml's rule
            (`dualml.algorithms.precision`); ``entries`` are the entries about it in the catalogue
            of differences (`dualml.parity.diffs`).
        package: package of an engine that is not part of the framework; ``series`` is the tested
            part of its version, ``install`` the command that installs it.
        moved: bytes that a rank sends in an update, as a multiple of (n - 1)/n of the model's
            bytes.
        counted: whether its messages go through sockets, whose bytes are counted; False if the
            engine may be built for another transport.
        forwards: number of forward passes of an update.
        shards: those of weights, gradients and state that are sharded when the optimizer steps.
        weight_bytes: bytes of a weight of the model; 0: those of the backend's dtype.
        masters: number of master copies of the weights, which the optimizer updates instead; they
            are sharded like the state and count as state.
        beside: language → what else it holds in memory, or where shards are not equal.
        file: file that it shares with other methods, which differ by their ``options``.
        configured: whether it takes its engine's own configuration
            (`dualml.experiment.methods.config`).
        prepared: whether its engine's loader distributes every global batch, in slices of a full
            batch's size, so that in a smaller batch the last ranks have fewer samples.
        unsupported: why it does not run on such a machine at all; ``page`` is the source.
    """

    name: str
    title: str
    what: Mapping[str, str]
    ranks: str = "any"
    precision: str = "fp32"
    casts: Mapping[str, str] = field(default_factory=dict)
    entries: Sequence[str] = ()
    package: str = ""
    series: str = ""
    install: str = ""
    moved: float = 0.0
    counted: bool = True
    forwards: int = 1
    shards: Sequence[str] = ()
    weight_bytes: int = 0
    masters: int = 0
    beside: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    configured: bool = False
    prepared: bool = False
    unsupported: str = ""
    page: str = ""

    def fits(self, several: bool) -> bool:
        """Return whether the method trains on several ranks or, if not ``several``, in one
        process."""
        return self.ranks in ("any", "several" if several else "one")

    def check(self) -> None:
        """Check that the method is supported here and its engine is installed in a tested version.

        Raises:
            Unsupported: it does not run here, or the engine is missing or has another version.
        """
        if self.unsupported:
            raise Unsupported(f"{self.title}: {self.unsupported}; see {self.page}")
        if not self.package:
            return
        try:
            found = version(self.package)
        except PackageNotFoundError:
            raise Unsupported(
                f"{self.title} is not installed; install it with: {self.install}"
            ) from None
        if not f"{found}.".startswith(f"{self.series}."):
            raise Unsupported(
                f"{self.title} {found} is installed; this was tried with {self.series} only: "
                f"install it with: {self.install}"
            )


@functools.cache
def _load_registry() -> Mapping[str, Mapping[str, MethodInfo]]:
    """Load backend → method → facts from ``methods.toml``."""
    table = tomllib.loads(
        files("dualml.experiment.methods").joinpath("methods.toml").read_text("utf-8")
    )
    return {
        backend: {name: MethodInfo(name=name, **facts) for name, facts in methods.items()}
        for backend, methods in table.items()
    }


#: Backend → method → facts about it.
METHODS = _load_registry()


def method_names() -> list[str]:
    """Return the names of all methods that some backend has, each once, in the order of
    ``methods.toml``."""
    return list(dict.fromkeys(name for methods in METHODS.values() for name in methods))


def check_name(name: str) -> None:
    """Raise `UserError` for a method that no backend has."""
    if name not in method_names():
        raise UserError(f"unknown method {name!r}{did_you_mean(name, method_names())}")


def list_methods(several: bool) -> dict[str, list[str]]:
    """Return by backend the names of the methods that run in one process, or with ``several`` on
    several ranks, without unsupported ones; whether an engine is installed is not checked."""
    return {
        backend: [i.name for i in methods.values() if i.fits(several) and not i.unsupported]
        for backend, methods in METHODS.items()
    }


def check_ranks(name: str, world_size: int, backends: Sequence[str] = ()) -> None:
    """Check that a method can train with ``world_size`` ranks on some backend of an arm.

    Args:
        backends: backends that the arm names; if none of them has the method, or there are none,
            all that have it count.

    Raises:
        UserError: no backend can; the text lists the methods that can.
    """
    several = world_size > 1
    having = {backend: infos[name] for backend, infos in METHODS.items() if name in infos}
    asked = {b: info for b, info in having.items() if not backends or b in backends} or having
    if any(info.fits(several) for info in asked.values()):
        return
    listed = "; ".join(
        f"{backend}: {', '.join(fit)}"
        for backend, fit in list_methods(several).items()
        if (backend in backends or not backends) and fit
    )
    can, other = "trains in one process", "set world_size = 1"
    if not several:
        can, other = "needs several ranks", "set world_size = 2 or more"
    raise UserError(
        f"method = {name} {can} on {' and '.join(asked)}, and world_size is {world_size}: {other}, "
        f"or use a method {'for several ranks' if several else 'in one process'} ({listed})"
    )


def find_method(backend: str, name: str) -> MethodInfo:
    """Find the facts about a method on a backend.

    Raises:
        Unsupported: the backend has no method of this name.
    """
    here = METHODS.get(backend, {})
    if name not in here:
        others = [other for other, methods in METHODS.items() if name in methods]
        raise Unsupported(
            f"backend {backend} has no method {name!r}; it is one of {' and '.join(others)}"
        )
    return here[name]


def check_backend_ranks(backend: str, name: str, world_size: int) -> None:
    """Check that the method ``name`` of ``backend``, if it has one of this name, takes
    ``world_size`` ranks: an arm without ``backends`` may name a method that only another backend
    trains with that many.

    Raises:
        Unsupported: the method takes another number of ranks here.
    """
    info = METHODS.get(backend, {}).get(name)
    if info is not None and not info.fits(world_size > 1):
        need = "in one process" if info.ranks == "one" else "with several ranks"
        raise Unsupported(
            f"{info.title}: method = {name} trains {need} on {backend}, and world_size is "
            f"{world_size}"
        )
