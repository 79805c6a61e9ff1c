"""Public names and members of public classes under the names that they had in version 0.1.

>>> Slice.whole("fc.weight", array)  # DeprecationWarning: Slice.whole is now Slice.full

Reading, setting, calling and overriding a former name works, and every use warns. New code uses the
present name, which type checkers and the documentation know. The names are listed in
``former_members.json``. Former import paths are the business of `dualml.common.former_paths`.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

# JSON, because every process reads it: a TOML file of this size takes 5 ms.
_NAMES = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
#: Class → former name → present name. Subclasses inherit the entries.
FORMER_MEMBERS: Mapping[str, Mapping[str, str]] = _NAMES["members"]
#: Class → method that subclasses override → former name of a keyword → present name.
FORMER_KEYWORDS: Mapping[str, Mapping[str, Mapping[str, str]]] = _NAMES["keywords"]


class FormerMember:
    """Descriptor that answers to a former name with the present member of the same object.

    Args:
        home: class that defines the present member. ``super().former()`` starts there, and not at
            the class of the object, which may call it from the overriding method.
        former: its name in version 0.1.
        present: its name now.
    """

    def __init__(self, home: type, former: str, present: str) -> None:
        self.home, self.former, self.present = home, former, present

    def __get__(self, instance: Any, owner: type) -> Any:
        self.warn(owner)
        bases = (vars(base) for base in self.home.__mro__)
        member: Any = next((own[self.present] for own in bases if self.present in own), None)
        if hasattr(type(member), "__get__"):
            return member.__get__(instance, owner)
        return getattr(owner if instance is None else instance, self.present)

    def __set__(self, instance: Any, value: Any) -> None:
        self.warn(type(instance))
        setattr(instance, self.present, value)

    def warn(self, owner: type) -> None:
        """Warn that the member of ``owner`` has a new name."""
        _warn(f"{owner.__name__}.{self.former} is now {owner.__name__}.{self.present}")


def keep_former_members(cls: C) -> C:
    """Let a class and its subclasses answer to the former names of their members; return the class.

    It is the outermost decorator, because a renamed field is also a parameter of the ``__init__``
    that `dataclass` makes. A subclass that overrides a member by its former name overrides the
    present one.

    Raises:
        KeyError: `FORMER_MEMBERS` does not list the class.
    """
    key = f"{cls.__module__}.{cls.__qualname__}"
    members, keywords = FORMER_MEMBERS[key], FORMER_KEYWORDS.get(key, {})
    for former, present in members.items():
        setattr(cls, former, FormerMember(cls, former, present))
    if init := vars(cls).get("__init__"):
        known = inspect.signature(init).parameters
        if fields := {f: p for f, p in members.items() if p in known}:
            cls.__init__ = _rename_keywords(init, fields, cls.__name__)  # type: ignore[misc]

    def __init_subclass__(subclass: Any, /, **kwargs: Any) -> None:
        super(cls, subclass).__init_subclass__(**kwargs)  # type: ignore[arg-type]
        _adopt_overrides(subclass)
        for method, renamed in keywords.items():
            _adapt_override(subclass, method, renamed)

    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]
    return cls


def rename_keywords(renamed: Mapping[str, str]) -> Callable[[F], F]:
    """Return a decorator that lets a function accept keywords by former names, each with a warning.

    >>> @rename_keywords({"torch_module": "a"})
    ... def compare(a): ...

    Args:
        renamed: former keyword → present keyword.
    """

    def decorate(function: F) -> F:
        return cast(F, _rename_keywords(function, renamed, function.__name__))

    return decorate


def former_keywords(function: Any) -> Mapping[str, str]:
    """Return the former keywords that a function accepts with a warning → present keyword."""
    renamed: Mapping[str, str] = getattr(function, "_former_keywords", {})
    return renamed


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that answers to names of version 0.1 with a warning.

    >>> __getattr__ = former_names(__name__, {"Place": "RankContext"})

    Args:
        module: ``__name__`` of the module.
        names: former name → present name in the same module.
    """

    def get_former(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name} is now {module}.{names[name]}")
        return getattr(sys.modules[module], names[name])

    return get_former


def _adopt_overrides(subclass: type) -> None:
    """Store members that ``subclass`` itself defines by a former name under the present name too,
    with a warning, and let former names lead to its own members. Changes the class in place."""
    own = vars(subclass)
    inherited = {
        member.former: member.present
        for base in subclass.__mro__
        for member in vars(base).values()
        if isinstance(member, FormerMember)
    }
    for former, present in inherited.items():
        if former in own and not isinstance(own[former], FormerMember):
            name = subclass.__qualname__
            _warn(f"{name} overrides {former}, which is now {present}")
            setattr(subclass, present, own[former])
            notes = inspect.get_annotations(subclass)
            if former in notes:
                subclass.__annotations__ = {present if n == former else n: notes[n] for n in notes}
        if present in own:
            setattr(subclass, former, FormerMember(subclass, former, present))


def _adapt_override(subclass: type, method: str, renamed: Mapping[str, str]) -> None:
    """Wrap ``method`` of a subclass so that callers may pass keywords by their present names.

    Nothing changes if the subclass does not define it, or has no parameter by a former name.

    Args:
        renamed: former keyword → present keyword.
    """
    override: Any = vars(subclass).get(method)
    function = getattr(override, "__func__", override)  # of a static or class method
    if function is None or not renamed.keys() & inspect.signature(function).parameters.keys():
        return
    _warn(f"{subclass.__qualname__}.{method} has a parameter by its former name: {dict(renamed)}")
    adapted = _rename_keywords(function, {present: former for former, present in renamed.items()})
    setattr(subclass, method, adapted if override is function else type(override)(adapted))


def _rename_keywords(
    function: Callable[..., Any], renamed: Mapping[str, str], what: str = ""
) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that accepts keywords by other names.

    Args:
        renamed: keyword that callers pass → keyword that ``function`` takes.
        what: name of the function in a warning for each renamed keyword; empty: no warning.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for given, taken in renamed.items():
            if given in kwargs:
                if what:
                    _warn(f"the parameter {given} of {what} is now {taken}")
                kwargs[taken] = kwargs.pop(given)  # `dataclasses.replace` passes both
        return function(*args, **kwargs)

    if what:
        call._former_keywords = dict(renamed)  # type: ignore[attr-defined]
    return call


def _warn(message: str) -> None:
    """Warn at the line outside of this module that used the former name."""
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__") in {__name__, "abc", "functools"}:
        depth += 1
    warnings.warn(message, DeprecationWarning, depth + 1)
