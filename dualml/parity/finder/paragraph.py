"""Description of a finding as one actionable paragraph, in either language."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.common.words import LANGUAGES, load_messages, section_messages
from dualml.parity.diffs.lookup import entries_about
from dualml.parity.finder.lines.program import differing_lines
from dualml.parity.places import FLOOR

#: Number of parameters that are named.
MAX_NAMES = 4


def add_text(finding: JsonObject) -> JsonObject:
    """Return a finding with its paragraph in both languages, as stored in ``findings.json``."""
    return {**finding, "text": {lang: paragraph(finding, lang) for lang in LANGUAGES}}


def paragraph(finding: JsonObject, lang: str = "en") -> str:
    """Return a paragraph about a finding, an entry of ``findings.json``: what was found, where, and
    what to do about it."""
    words, base = (
        section_messages(lang, "finding"),
        {"arm": finding["arm"], "seed": finding["seed"], "a": finding["a"], "b": finding["b"]},
    )
    if finding["status"] == "not replayed":
        return words["failed"].format(**base, reason=str(finding["reason"]).rstrip("."))
    if finding["status"] == "rounding only":
        worst = finding.get("worst") or {}
        where = words["at"].format(**worst) if worst else ""
        margin = finding.get("margin", 10)
        return words["rounding"].format(
            **base, ratio=f"{worst.get('ratio', 0):.1f}", margin=f"{margin:g}", where=where
        )
    return location_text(finding, lang) + cause_text(finding, lang)


def location_text(finding: Mapping[str, Any], lang: str) -> str:
    """Describe where the divergence is: update, phase, tensor, ranks, elements, and which backends
    agree."""
    words = section_messages(lang, "finding")
    comma = words["comma"]
    where = {"tensor": finding["tensor"], "collective": finding["collective"] or ""}
    ranks = ""
    if finding["owners"]:
        ranks = words["owners"].format(ranks=comma.join(map(str, finding["owners"])))
    elif finding["world_size"] > 1:
        on, size = finding["ranks"], finding["world_size"]
        key = "rank" if len(on) == 1 else "all ranks" if len(on) == size else "ranks"
        ranks = words[key].format(ranks=comma.join(map(str, on)), size=size)
    text = words["where"].format(
        arm=finding["arm"],
        seed=finding["seed"],
        backend=finding["backend"],
        step=finding["step"],
        phase=words[f"phase.{finding['phase']}"].format(**where),
        ranks=ranks,
    )
    shapes = finding["elements"]["shape"]
    if len(shapes) == 2:
        return text + words["shape"].format(found=tuple(shapes[0]), expected=tuple(shapes[1]))
    if finding["phase"] != "data":
        far = finding["distance"]
        ratio = far if math.isinf(far) else far / max(finding["envelope"] or 0.0, FLOOR)
        also = other_backends_text(finding, lang)
        text += words["far"].format(distance=f"{far:.1e}", ratio=f"{ratio:.2g}", others=also)
    if finding["elements"]["largest"]:
        first = finding["elements"]["largest"][0]
        index = f"[{', '.join(map(str, first['index']))}]" if first["index"] else ""
        text += words["element"].format(
            tensor=finding["tensor"],
            index=index,
            found=f"{first['found']:.6g}",
            expected=f"{first['expected']:.6g}",
            share=f"{finding['elements']['share']:.0%}",
            count=len(finding["tensors"]),
            all=finding["of_tensors"],
        )
    return text


def other_backends_text(finding: Mapping[str, Any], lang: str) -> str:
    """Describe whether the other backends deviate there, too."""
    both = [name for name in finding["guilty"] if name != finding["backend"]]
    fine = [name for name in finding["others"] if name not in both]
    words = section_messages(lang, "finding")
    return "".join(
        words[key].format(names=words["comma"].join(names))
        for key, names in (("both", both), ("others", fine))
        if names
    )


def cause_text(finding: Mapping[str, Any], lang: str) -> str:
    """Describe the best cause and its remedy, or state that the cause is unknown."""
    words = section_messages(lang, "finding")
    if not finding["causes"]:
        return words["nothing"]
    best = finding["causes"][0]
    known = {"score": f"{best['score']:.1%}", "says": cause_clause(best, lang)}
    if finding["status"] != "found":
        return words["unknown"].format(**known)
    text = words["cause"].format(
        remedy=load_messages(lang)[f"cause.{best['cause']}.remedy"], **known
    )
    text += doubt_text(finding["causes"], lang)
    about = entries_about(best["cause"])
    return text + (words["diffs"].format(entry=about[0]) if about else "")


def doubt_text(causes: Sequence[Mapping[str, Any]], lang: str) -> str:
    """Describe how far the best cause can be believed: the updates that show it, and the causes
    that explain them as well."""
    words, best = section_messages(lang, "finding"), causes[0]
    fits, text = best.get("fits", []), ""
    if "updates" in best["detail"]:
        text += words["only"].format(updates=format_value(fits))
    elif len(fits) == 1:
        text += words["once"].format(step=fits[0])
    for other in causes[1:]:
        if other.get("fits"):
            text += words["tied"].format(says=cause_clause(other, lang))
    return text


def cause_clause(cause: Mapping[str, Any], lang: str) -> str:
    """Return the clause about one cause of a finding, with its numbers."""
    template = load_messages(lang).get(f"cause.{cause['cause']}.says", cause["cause"])
    detail = cause["detail"]
    if "instead" in detail:
        line, instead = differing_lines(detail["line"], detail["instead"])
        detail = {**detail, "line": line, "instead": instead}
    shown = {name: format_value(value) for name, value in detail.items()}
    shown["parameters"] = format_names(detail.get("parameters", "all"), lang)
    return str(template.format_map(shown))


def format_names(names: str | Sequence[str], lang: str) -> str:
    """Format names of parameters, the first of many; ``all`` in the language."""
    words = section_messages(lang, "finding")
    if isinstance(names, str):
        return str(words["all parameters"]) if names == "all" else names
    shown = str(words["comma"]).join(names[:MAX_NAMES])
    left = len(names) - MAX_NAMES
    return str(words["more parameters"]).format(names=shown, n=left) if left > 0 else shown


def format_value(value: Any) -> str:
    """Format a detail of a cause as text: floats with four significant digits, lists with
    commas."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(one) for one in value)
    return str(value)
