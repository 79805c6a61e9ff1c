"""One line of `dualml doctor`, in both languages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, Literal

from dualml.words import LANGUAGES, both, table

Mark = Literal["ok", "warn", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was found about one item, and what to do about it.

    ``problem`` is for what keeps a backend from working, ``warn`` for what one should know.
    """

    item: str
    mark: Mark
    en: str
    zh: str
    remedy_en: str = ""
    remedy_zh: str = ""

    def text(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en

    def remedy(self, lang: str) -> str:
        return self.remedy_zh if lang == "zh" else self.remedy_en


def finding(
    item: str,
    mark: Mark,
    key: str = "",
    remedy: str = "",
    *,
    package: str = "dualml.words",
    **values: Any,
) -> Finding:
    """A finding in both languages.

    Args:
        key: of its text below ``doctor.says``; without it the text is the value ``text``.
        remedy: of what to do below ``doctor.remedy``; a command stands for itself.
        package: where the texts are; a backend has its own.
    """
    says = both(f"doctor.says.{key}", package, **values) if key else as_it_is(values["text"])
    known = f"doctor.remedy.{remedy}" in table("en", package=package)
    todo = both(f"doctor.remedy.{remedy}", package, **values) if known else as_it_is(remedy)
    return Finding(item, mark, says["en"], says["zh"], todo["en"], todo["zh"])


def as_it_is(text: str) -> dict[str, str]:
    """The same in every language."""
    return dict.fromkeys(LANGUAGES, text)


def version_finding(package: str, version: str, extra: str, note: str = "") -> Finding:
    """Whether an installed version is within the range dualml declares for its extra."""
    wanted = declared(package, extra)
    shown = f"{version}{f' ({note})' if note else ''}"
    if within(version, wanted):
        return finding(package, "ok", text=shown)
    remedy = f"pip install 'dualml[{extra}]'"
    return finding(package, "warn", "untested", remedy, shown=shown, wanted=wanted)


def declared(package: str, extra: str) -> str:
    """The range of versions in dualml's own metadata, ``">=2.4,<2.14"``; empty if none."""
    try:
        lines = requires("dualml") or []
    except PackageNotFoundError:
        return ""
    for line in lines:
        requirement, _, marker = line.partition(";")
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        if name and name[0] == package and re.search(f"extra == ['\"]{extra}['\"]", marker):
            parts = requirement[name.end() :].strip(" ()").split(",")
            return ",".join(sorted((part.strip() for part in parts), reverse=True))
    return ""


def within(version: str, wanted: str) -> bool:
    """Whether a release lies in a range of ``>=`` and ``<``; local parts (``+cpu``) don't count.

    >>> within("2.13.0+cpu", ">=2.4,<2.14"), within("2.14.0", ">=2.4,<2.14")
    (True, False)
    """
    have = release(version)
    bounds = re.findall(r"(>=|<)\s*([\d.]+)", wanted)
    return all((have >= release(bound)) == (sign == ">=") for sign, bound in bounds)


def release(version: str) -> tuple[int, ...]:
    """``"2.13.0+cpu"`` → ``(2, 13, 0)``."""
    digits = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, digits[0].split("."))) if digits else ()
