"""The table of docs/gauntlet.md and its Chinese page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualml.parity.models.mutation_sentences import describe_mutation

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"en": DOCS / "gauntlet.md", "zh": DOCS / "gauntlet.zh.md"}
HEAD = {
    "en": (
        "pair",
        "paired",
        "verdict",
        "first divergence",
        "cause, tested",
        "line of the port",
        "s",
        "MB",
        "patched",
    ),
    "zh": (
        "模型",
        "已配对",
        "判定",
        "首个差异",
        "原因（已检验）",
        "移植代码行",
        "秒",
        "MB",
        "修补后",
    ),
}
VERDICTS = {"equal": "相等", "different": "不同", "not comparable": "不可比较", "refused": "拒绝"}
NONE = {"en": "none explains it", "zh": "没有能解释的"}
#: Text for pairs whose only difference is parameters that one side has alone.
ALONE = {
    "en": "{n} parameters that one side alone has; all else is equal",
    "zh": "有 {n} 个参数只有一侧才有；其余相等",
}


def write(rows: Sequence[dict[str, Any]]) -> None:
    """Write the table between the marks of each page."""
    for lang, page in PAGES.items():
        replace_table(page, "gauntlet", table(rows, lang))


def replace_table(page: Path, mark: str, text: str) -> None:
    """Replace what stands between a page's marks ``<!-- MARK -->`` and ``<!-- /MARK -->``."""
    new = re.sub(
        rf"(<!-- {mark} -->\n).*(<!-- /{mark} -->)",
        lambda match: match[1] + text + match[2],
        page.read_text("utf-8"),
        flags=re.DOTALL,
    )
    page.write_text(new, "utf-8")


def table(rows: Sequence[dict[str, Any]], lang: str) -> str:
    """Return the table of all pairs in a language."""
    after = {row["name"]: row["verdict"] for row in rows if row["patched"]}
    lines = [HEAD[lang], ["---", "--:", "---", "---", "---", "---", "--:", "--:", "---"]]
    lines += [cells(row, lang, after.get(row["name"])) for row in rows if not row["patched"]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cells(row: dict[str, Any], lang: str, after: str | None) -> list[str]:
    """Return the cells of one pair."""
    first, found = row.get("first") or {}, row.get("explanation") or {}
    verdict = [verdict_text(row["verdict"], lang)] + ([verdict_text(after, lang)] if after else [])
    return [
        f"`{row['name']}`",
        paired(row),
        verdict[0],
        f"`{first['layer'] or first['tensor']}`" if first else reason(row, lang),
        causes(found, lang, count_unmatched(row)) if first else "",
        line(found),
        f"{row.get('seconds', 0):.0f}",
        f"{row.get('megabytes', 0):.0f}",
        verdict[1] if after else "",
    ]


def verdict_text(verdict: str, lang: str) -> str:
    return VERDICTS.get(verdict, verdict) if lang == "zh" else verdict


def paired(row: dict[str, Any]) -> str:
    """Return the share of matched parameters; those matched by order alone are not counted."""
    pairs = row.get("mapping", ())
    sure = sum(pair["how"] != "order" for pair in pairs)
    return f"{sure / (len(pairs) + count_unmatched(row)):.0%}" if pairs else ""


def count_unmatched(row: dict[str, Any]) -> int:
    """Return the number of parameters without a partner."""
    return sum(note["n"] for note in row.get("notes", ()) if note["key"] == "alone")


def reason(row: dict[str, Any], lang: str) -> str:
    """Return why there is nothing to compare; an equal pair needs no reason."""
    if row["verdict"] == "equal":
        return ""
    raised = [note["text"] for note in row.get("notes", ()) if note["key"] == "raised"]
    return (raised[0] if raised else row["text"][lang])[:90].replace("|", "/")


def causes(found: dict[str, Any], lang: str, alone: int) -> str:
    """Return the causes of a difference as text."""
    if found.get("equal") and not found.get("causes"):
        return ALONE[lang].format(n=alone)
    names = [
        " / ".join(dict.fromkeys(describe_mutation(lang, one) for one in cause["alterations"]))
        for cause in found.get("causes", ())
    ]
    rest = [] if found.get("enough") else ["…"]
    return {"en": "; ", "zh": "；"}[lang].join([*names, *rest]) if names else NONE[lang]


def line(found: dict[str, Any]) -> str:
    """Return the source line of a difference as text."""
    cause = next(iter(found.get("causes", ())), found)
    other = cause.get("other") or {}
    place = other.get("built") or other.get("place")
    return f"`{Path(place['file']).name}:{place['line']}`" if place else ""
