"""One line of `dualml doctor`, in both languages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

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
    if wanted.contains(version, prereleases=True):
        return finding(package, "ok", text=shown)
    remedy = f"pip install 'dualml[{extra}]'"
    return finding(package, "warn", "untested", remedy, shown=shown, wanted=spelled(wanted))


def declared(package: str, extra: str) -> SpecifierSet:
    """The range of versions in dualml's own metadata; all versions where it names none."""
    try:
        lines = requires("dualml") or []
    except PackageNotFoundError:
        lines = []
    for one in map(Requirement, lines):
        if one.name == package and one.marker and one.marker.evaluate({"extra": extra}):
            return one.specifier
    return SpecifierSet()


def spelled(wanted: SpecifierSet) -> str:
    """The lower bound first.

    >>> spelled(SpecifierSet("<2.14,>=2.4"))
    '>=2.4,<2.14'
    """
    return ",".join(sorted(map(str, wanted), reverse=True))
