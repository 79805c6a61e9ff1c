"""What the commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from dualml.errors import plain
from dualml.files import finite
from dualml.report.blocks import Cell, Table
from dualml.report.page import terminal
from dualml.words import Words

LONGEST = 2000  # characters of a message


def complain(text: str) -> None:
    """One line on standard error, whatever its parts hold; nothing where the terminal is gone."""
    line = " ".join(map(plain, text.split()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"dualml: {line}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    escaped = "utf" not in (sys.stdout.encoding or "").lower()  # then every letter as ASCII
    json.dump(finite(value), sys.stdout, indent=1, ensure_ascii=escaped, allow_nan=False)
    sys.stdout.write("\n")


def print_run(folder: Any, parity: Mapping[str, Any], lang: str, *, report: bool) -> None:
    from dualml.store.report import report_path

    if notice := folder.run.data.notice:
        typer.echo(f"{typer.style('!', fg='yellow')} {notice.get(lang, notice['en'])}")
    print_verdicts(parity, lang)
    print_findings(folder.path, lang)
    typer.echo(f"→ {report_path(folder.path) if report else folder.path}")


def print_verdicts(parity: Mapping[str, Any], lang: str = "en") -> None:
    """One row for each arm, seed and pair of backends; then how many arms with several ranks are
    what one rank computes, and which are not, nor methods what our own training in their precision
    computes."""
    from dualml.report.columns import VERDICT_TONES, columns

    words = Words(lang)

    def verdict(c: Mapping[str, Any]) -> str:
        return words(f"verdict.{c['verdict'].replace(' ', '_')}")

    rows = [
        [
            c["arm"],
            str(c["seed"]),
            f"{c['a']} – {c['b']}",
            Cell(verdict(c), VERDICT_TONES[c["verdict"]]),
            str(c.get("steps", "")),
            "" if (ratio := c["evidence"].get("worst_ratio")) is None else f"{ratio:.2f}",
            evidence(c, words),
        ]
        for c in parity.get("comparisons") or ()
    ]
    if rows:
        heads = columns(words, "arm", "seed:", "pair", "verdict", "steps:", "ratio:", "reason")
        terminal.show(Table("verdicts", "", heads, rows))
    else:
        typer.echo(words("headline.empty"))
    judged = [c for c in parity.get("serial", ()) if c["verdict"] is not None]
    if judged:
        equal = sum(c["verdict"] in ("equal", "statistically equal") for c in judged)
        typer.echo(words("headline.serial", equal=equal, n=len(judged)))
    for c in (*judged, *parity.get("lowered", ())):
        if c["verdict"] != "equal":
            place = f"{c['arm']} – {c['against']}, {c['backend']}, {c['seed']}"
            typer.echo(f"{place}: {verdict(c)} {evidence(c, words)}")


def print_findings(folder: Path, lang: str) -> None:
    """The paragraphs of what was found in a run."""
    from dualml.store.findings import read_findings

    for finding in read_findings(folder):
        typer.echo(f"• {getattr(finding.text, lang)}")


def evidence(c: Mapping[str, Any], words: Any) -> str:
    """One phrase that says why."""
    from dualml.report.verdicts import divergence

    why = words.either(f"reason.{c['reason']}", c["reason"])
    if c["reason"] == "inside_envelope":
        return ""  # what the verdict says
    if c.get("first_divergence"):
        return str(divergence(c["first_divergence"], words))
    if c["reason"] == "trial_missing":
        statuses = [f"{n} {words.either(f'status.{s}', s)}" for n, s in c["evidence"].items()]
        return words.join(statuses) or str(why)
    if "equivalence" in c["evidence"]:
        test = c["evidence"]["equivalence"]
        low, mean, high = (f"{100 * test[key]:.2f}" for key in ("low", "mean", "high"))
        values = words("evidence.equivalence", mean=mean, low=low, high=high, n=test["seeds"])
        return f"{why}: {values}"
    if c["evidence"].get("chaotic_from"):
        return f"{why} ({words('evidence.chaotic', step=c['evidence']['chaotic_from'])})"
    return str(why)
