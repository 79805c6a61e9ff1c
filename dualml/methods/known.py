"""What is known of every method without importing its engine."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from dualml.errors import Unsupported, UserError, nearest


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """One method on one backend.

    Attributes:
        name: of its file.
        title: as its makers call it.
        what: language → what it is, in a few words.
        ranks: ``one`` process, ``several``, or ``any`` number.
        precision: of most of its arithmetic: ``fp32``, ``bf16``, ``fp16``.
        casts: language → where it casts otherwise than our rule (`dualml.precision`), of a lower
            precision; ``entries`` of the catalogue of differences (`dualml.diffs`) are about it.
        package: of the engine, where it is not part of the framework; ``series`` is the part of its
            version that was tried, ``install`` the command.
        moved: what a rank sends in an update, as a multiple of (n - 1)/n of the model's bytes.
        counted: whether its messages leave by sockets, which are counted; not where the engine may
            be built for another way.
        forwards: forward passes of an update.
        shards: of weights, gradients and state those of which each rank has a part when the
            optimizer steps.
        weight_bytes: of a weight of the model; 0: as many as the backend's type has.
        masters: copies of the weights that its optimizer updates in their place, in parts as the
            state; they count as state.
        beside: language → what it holds beside these, or where the parts are not equal.
        file: that it shares with others, from which ``options`` tell it apart.
        configured: takes its engine's own configuration (`dualml.methods.config`).
        prepared: its engine's loader deals every global batch out, in slices as long as those of a
            full one; of a smaller batch the last ranks have fewer samples.
        unsupported: why it does not run on a machine like this at all, and ``page`` says so.
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
        """Tell whether it trains with several ranks, or in one process."""
        return self.ranks in ("any", "several" if several else "one")

    def check(self) -> None:
        """
        Raises:
            Unsupported: it does not run here; the engine is not installed, or is another version.
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
def _known() -> Mapping[str, Mapping[str, MethodInfo]]:
    table = tomllib.loads(files("dualml.methods").joinpath("methods.toml").read_text("utf-8"))
    return {
        backend: {name: MethodInfo(name=name, **facts) for name, facts in methods.items()}
        for backend, methods in table.items()
    }


#: Backend → method → what is known of it.
METHODS = _known()


def names() -> list[str]:
    """Every method that some backend has."""
    return list(dict.fromkeys(name for methods in METHODS.values() for name in methods))


def check_name(name: str) -> None:
    """Raises `UserError` for a method that no backend has."""
    if name not in names():
        raise UserError(f"unknown method {name!r}{nearest(name, names())}")


def for_ranks(several: bool) -> dict[str, list[str]]:
    """List by backend the methods that run here in one process, or with ``several`` ranks."""
    return {
        backend: [i.name for i in methods.values() if i.fits(several) and not i.unsupported]
        for backend, methods in METHODS.items()
    }


def check_ranks(name: str, world_size: int, backends: Sequence[str] = ()) -> None:
    """Check that a method can train with ``world_size`` ranks on some backend of an arm.

    Args:
        backends: that the arm names; none named, all that have the method.

    Raises:
        UserError: it cannot; the text lists the methods that can.
    """
    several = world_size > 1
    having = {backend: infos[name] for backend, infos in METHODS.items() if name in infos}
    asked = {b: info for b, info in having.items() if not backends or b in backends} or having
    if any(info.fits(several) for info in asked.values()):
        return
    listed = "; ".join(
        f"{backend}: {', '.join(fit)}"
        for backend, fit in for_ranks(several).items()
        if (backend in backends or not backends) and fit
    )
    can, other = "trains in one process", "set world_size = 1"
    if not several:
        can, other = "needs several ranks", "set world_size = 2 or more"
    raise UserError(
        f"method = {name} {can} on {' and '.join(asked)}, and world_size is {world_size}: {other}, "
        f"or use a method {'for several ranks' if several else 'in one process'} ({listed})"
    )


def method(backend: str, name: str) -> MethodInfo:
    """Find what is known of a method on a backend.

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


def check_here(backend: str, name: str, world_size: int) -> None:
    """Check that a backend's method of this name, if it has one, takes ``world_size`` ranks: an arm
    without ``backends`` may name one that only another backend trains with so many.

    Raises:
        Unsupported: it has another number of ranks here.
    """
    info = METHODS.get(backend, {}).get(name)
    if info is not None and not info.fits(world_size > 1):
        need = "in one process" if info.ranks == "one" else "with several ranks"
        raise Unsupported(
            f"{info.title}: method = {name} trains {need} on {backend}, and world_size is "
            f"{world_size}"
        )
