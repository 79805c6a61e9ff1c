"""Diagnose the installation: what is installed, what does not fit together, and the remedies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dualml.common.json_types import JsonObject
from dualml.interface.doctor.finding import DoctorFinding

__all__ = ["Diagnosis", "DoctorFinding", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """Result of the diagnosis.

    Attributes:
        sections: ``machine``, each backend, ``fit`` → findings; ``files`` alone if files were
            examined instead.
        works: backend → whether it works; empty if none was examined.
    """

    sections: dict[str, list[DoctorFinding]]
    works: dict[str, bool]

    @property
    def ok(self) -> bool:
        """Whether at least one framework works, or all is well with the files if they alone were
        examined."""
        if "files" in self.sections:
            return all(finding.mark == "ok" for finding in self.sections["files"])
        return any(self.works.values())

    def describe(self, lang: str) -> JsonObject:
        """Return ``ok``, ``backends`` (name → whether it works) and ``findings`` as a
        JSON-serializable dict, with texts in one language."""
        rows = [
            {
                "section": section,
                "item": one.item,
                "mark": one.mark,
                "text": one.text(lang),
                "remedy": one.remedy(lang) or None,
            }
            for section, findings in self.sections.items()
            for one in findings
        ]
        return {"ok": self.ok, "backends": self.works, "findings": rows}


def diagnose(tell: Callable[[str], None] = lambda section: None) -> Diagnosis:
    """Examine the machine, every backend but NumPy, and which framework releases fit.

    Args:
        tell: called with the name of each section before its examination.
    """
    from dualml.backend import backends
    from dualml.interface.doctor.backends import examine_backend
    from dualml.interface.doctor.fit import examine_fit, read_machine_facts
    from dualml.interface.doctor.system import examine_system

    tell("machine")
    sections = {"machine": list(examine_system())}
    works: dict[str, bool] = {}
    for name, info in backends().items():
        if name != "numpy":  # everything else is built on it, so it works
            tell(name)
            sections[name], works[name] = examine_backend(info)
    tell("fit")
    sections["fit"] = list(examine_fit(read_machine_facts()))
    return Diagnosis(sections, works)
