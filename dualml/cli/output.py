"""What the commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLOURS = {
    "equal": "green",
    "statistically equal": "green",
    "different": "red",
    "not comparable": "yellow",
}
#: Columns of the verdicts that are never broken.
WHOLE = ("arm", "pair", "verdict")


def print_json(value: Any) -> None:
    from dualml.files import finite

    escaped = "utf" not in (sys.stdout.encoding or "").lower()  # then every letter as ASCII
    json.dump(finite(value), sys.stdout, indent=1, ensure_ascii=escaped, allow_nan=False)
    sys.stdout.write("\n")


def print_run(folder: Any, parity: Mapping[str, Any], lang: str, *, report: bool) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    notice = folder.run.data.notice
    if notice:
        text = escape(notice.get(lang, notice["en"]))
        console.print(f"[yellow]![/] {text}", soft_wrap=True)
    print_verdicts(parity, lang)
    print_findings(folder.path, lang)
    where: Path = folder.path / "report.html" if report else folder.path
    console.print(f"→ {where}", highlight=False, markup=False, soft_wrap=True)


def print_verdicts(parity: Mapping[str, Any], lang: str = "en") -> None:
    """One row for each arm, seed and pair of backends."""
    from rich.console import Console
    from rich.table import Table

    from dualml.words import Words

    words, console = Words(lang), Console()
    if not parity.get("comparisons"):
        console.print(words("headline.empty"), highlight=False)
        print_serial(parity, words, console)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("arm", "seed", "pair", "verdict", "steps", "ratio", "reason"):
        width = 20 if column == "reason" else None  # a phrase, not one word a line
        table.add_column(
            words(f"column.{column}"), overflow="fold", no_wrap=column in WHOLE, min_width=width
        )
    for c in parity["comparisons"]:
        ratio, verdict = c["evidence"].get("worst_ratio"), c["verdict"]
        table.add_row(
            c["arm"],
            str(c["seed"]),
            f"{c['a']} – {c['b']}",
            f"[{COLOURS[verdict]}]{words('verdict.' + verdict.replace(' ', '_'))}[/]",
            str(c.get("steps", "")),
            "" if ratio is None else f"{ratio:.2f}",
            evidence(c, words),
        )
    console.print(table)
    print_serial(parity, words, console)


def print_findings(folder: Path, lang: str) -> None:
    """The paragraphs of what was found in a run."""
    from rich.console import Console

    from dualml.store.findings import read_findings

    for finding in read_findings(folder):
        Console().print(f"• {getattr(finding.text, lang)}", highlight=False, markup=False)


def print_serial(parity: Mapping[str, Any], words: Any, console: Any) -> None:
    """How many arms with several ranks are what one rank computes, and which are not."""
    judged = [c for c in parity.get("serial", ()) if c["verdict"] is not None]
    if not judged:
        return
    equal = sum(c["verdict"] in ("equal", "statistically equal") for c in judged)
    console.print(words("headline.serial", equal=equal, n=len(judged)), highlight=False)
    for c in judged:
        if c["verdict"] != "equal":
            verdict = words("verdict." + c["verdict"].replace(" ", "_"))
            told = f"[{COLOURS[c['verdict']]}]{verdict}[/] {evidence(c, words)}"
            place = f"{c['arm']} – {c['against']}, {c['backend']}, {c['seed']}"
            console.print(f"{place}: {told}", highlight=False, soft_wrap=True)


def evidence(c: dict[str, Any], words: Any) -> str:
    """One phrase that says why."""
    from dualml.report.verdicts import divergence

    why = words.either(f"reason.{c['reason']}", c["reason"])
    if c["reason"] == "inside_envelope":
        return ""  # what the verdict says
    if c.get("first_divergence"):
        return str(divergence(c["first_divergence"], words))
    if c["reason"] == "trial_missing":
        told = [f"{n} {words.either(f'status.{s}', s)}" for n, s in c["evidence"].items()]
        return words.join(told) or str(why)
    if "equivalence" in c["evidence"]:
        test = c["evidence"]["equivalence"]
        low, mean, high = (f"{100 * test[key]:.2f}" for key in ("low", "mean", "high"))
        values = words("evidence.equivalence", mean=mean, low=low, high=high, n=test["seeds"])
        return f"{why}: {values}"
    if c["evidence"].get("chaotic_from"):
        return f"{why} ({words('evidence.chaotic', step=c['evidence']['chaotic_from'])})"
    return str(why)
