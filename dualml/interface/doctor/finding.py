"""Findings of `dualml doctor`, one line each, in both languages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from dualml.common.words import LANGUAGES, all_languages, load_messages

Mark = Literal["ok", "warn", "problem"]


@dataclass(frozen=True)
class DoctorFinding:
    """A finding about one item, and its remedy, in both languages.

    ``problem`` marks what keeps a backend from working, ``warn`` what one should know.
    """

    item: str
    mark: Mark
    en: str
    zh: str
    remedy_en: str = ""
    remedy_zh: str = ""

    def text(self, lang: str) -> str:
        """Return the text in Chinese for ``zh``, else in English."""
        return self.zh if lang == "zh" else self.en

    def remedy(self, lang: str) -> str:
        """Return the remedy in Chinese for ``zh``, else in English; empty if there is none."""
        return self.remedy_zh if lang == "zh" else self.remedy_en


def make_finding(
    item: str,
    mark: Mark,
    key: str = "",
    remedy: str = "",
    *,
    package: str = "dualml.common.words",
    **values: Any,
) -> DoctorFinding:
    """Make a finding in both languages from message keys; ``values`` fill the messages.

    Args:
        key: message below ``doctor.says``; if empty, the text is the value ``text``.
        remedy: message below ``doctor.remedy``, or a command, which is used as it is.
        package: package of the messages; a backend has its own.
    """
    says = (
        all_languages(f"doctor.says.{key}", package, **values) if key else same_text(values["text"])
    )
    known = f"doctor.remedy.{remedy}" in load_messages("en", package=package)
    todo = (
        all_languages(f"doctor.remedy.{remedy}", package, **values) if known else same_text(remedy)
    )
    return DoctorFinding(item, mark, says["en"], says["zh"], todo["en"], todo["zh"])


def same_text(text: str) -> dict[str, str]:
    """Return a dict with this text for every language."""
    return dict.fromkeys(LANGUAGES, text)


def version_finding(package: str, version: str, extra: str, note: str = "") -> DoctorFinding:
    """Make a finding on whether a version is in the range that dualml declares for its extra:
    ``ok``, or ``warn`` with the command that installs one."""
    wanted = declared_versions(package, extra)
    shown = f"{version}{f' ({note})' if note else ''}"
    if wanted.contains(version, prereleases=True):
        return make_finding(package, "ok", text=shown)
    remedy = f"pip install 'dualml[{extra}]'"
    return make_finding(
        package, "warn", "untested", remedy, shown=shown, wanted=format_specifier(wanted)
    )


def declared_versions(package: str, extra: str) -> SpecifierSet:
    """Return the version range of a package that dualml's own metadata declare for an extra; all
    versions if they declare none."""
    try:
        lines = requires("dualml") or []
    except PackageNotFoundError:
        lines = []
    for one in map(Requirement, lines):
        if one.name == package and one.marker and one.marker.evaluate({"extra": extra}):
            return one.specifier
    return SpecifierSet()


def format_specifier(wanted: SpecifierSet) -> str:
    """Format a version range with the lower bound first.

    >>> format_specifier(SpecifierSet("<2.14,>=2.4"))
    '>=2.4,<2.14'
    """
    return ",".join(sorted(map(str, wanted), reverse=True))
