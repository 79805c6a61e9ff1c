"""Registries of named components: each module of a package registers what it adds.

A package (`dualml.algorithms.optim`, `dualml.parallel.aggregation`, …) holds a registry, which
imports every module of the package on first access. To add a component, add one module.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonMapping

T = TypeVar("T")


def cited_source(thing: object) -> str:
    """Return the source that the docstring of a class or function cites after ``Source:``, in one
    line without a last full stop; empty if it cites none."""
    stated = re.search(r"^Source: (.+?)(?:\n\n|\Z)", inspect.getdoc(thing) or "", re.S | re.M)
    return " ".join(stated[1].split()).rstrip(".").replace("*", "") if stated else ""


class Registry(Mapping[str, T], Generic[T]):
    """Mapping from name to component, ordered by ``order``, then by name.

    Args:
        noun: what a component is called in messages.
        package: the package whose modules register the components.
    """

    def __init__(self, noun: str, package: str) -> None:
        self.noun, self.package = noun, package
        self._things: dict[str, tuple[int, T]] = {}
        self._complete = False

    def register(self, name: str, order: int = 1000) -> Callable[[T], T]:
        """Return a decorator that makes a component available to experiment files under ``name``.

        Raises:
            ValueError: another component has the name.
        """

        def add_thing(thing: T) -> T:
            here = self._things.get(name)
            if here is not None and here[1] is not thing:
                raise ValueError(f"there is a {self.noun} {name!r} already: {here[1]!r}")
            self._things[name] = (order, thing)
            return thing

        return add_thing

    def find(self, name: object) -> T:
        """Return the component of that name; the first look-up imports the package's modules.

        Raises:
            UserError: the name is unknown; the message suggests the nearest one.
        """
        if not isinstance(name, str) or name not in self:
            raise UserError(f"unknown {self.noun} {name!r}{did_you_mean(str(name), self)}")
        return self[name]

    def __getitem__(self, name: str) -> T:
        self._load()
        return self._things[name][1]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._things, key=lambda name: (self._things[name][0], name)))

    def __len__(self) -> int:
        self._load()
        return len(self._things)

    def _load(self) -> None:
        """Import every module of the package once."""
        if self._complete:
            return
        self._complete = True  # a module may look up others while it is imported
        for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
            importlib.import_module(f"{self.package}.{module.name}")


class ClassRegistry(Registry[type[T]]):
    """Registry of classes; each class gets its name as its attribute ``name``."""

    def register(self, name: str, order: int = 1000) -> Callable[[type[T]], type[T]]:
        """Return a decorator that registers a class and sets its attribute ``name``; it raises
        `ValueError` if another class has the name."""
        keep = super().register(name, order)

        def add_class(kind: type[T]) -> type[T]:
            kind.name = name  # type: ignore[attr-defined]
            return keep(kind)

        return add_class

    def from_spec(self, spec: JsonMapping, setting: str = "setting") -> T:
        """Build an instance of a dataclass: ``{"name": "adam", "lr": 1e-3}`` → ``Adam(lr=1e-3)``.

        Lists become tuples.

        Args:
            setting: what a field is called in messages.

        Raises:
            UserError: an unknown name or setting, a missing one, or an invalid value.
        """
        name = spec.get("name")
        if name is None:
            article = "an" if self.noun[0] in "aeiou" else "a"
            raise UserError(f"{article} {self.noun} needs a name{did_you_mean('None', self)}")
        kind: Any = self.find(name)
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items() if k != "name"}
        known = {field.name: field for field in dataclasses.fields(kind)}
        for key in values:
            if key not in known:
                raise UserError(
                    f"{self.noun} {name!r} has no {setting} {key!r}{did_you_mean(key, known)}"
                )
        for key, field in known.items():
            if field.default is dataclasses.MISSING and key not in values:
                raise UserError(f"{self.noun} {name!r} needs {key}")
        chosen: T = kind(**values)
        return chosen
