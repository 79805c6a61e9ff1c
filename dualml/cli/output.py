"""What the commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dualml.errors import UserError

COLOURS = {
    "equal": "green",
    "statistically equal": "green",
    "different": "red",
    "not comparable": "yellow",
}


def check_lang(lang: str) -> None:
    if lang not in ("en", "zh"):
        raise UserError(f"--lang must be en or zh; received {lang!r}")


def print_json(value: Any) -> None:
    from dualml.files import finite

    json.dump(finite(value), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def print_run(folder: Any, parity: dict[str, Any], *, report: bool) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    notice = folder.run["data"].get("notice")
    if notice:
        text = escape(notice.get(folder.run["lang"], notice["en"]))
        console.print(f"[yellow]![/] {text}")
    print_verdicts(parity)
    where: Path = folder.path / "report.html" if report else folder.path
    console.print(f"→ {where}", highlight=False, markup=False, soft_wrap=True)


def print_verdicts(parity: dict[str, Any]) -> None:
    """One row for each arm, seed and pair of backends."""
    from rich.console import Console
    from rich.table import Table

    if not parity.get("comparisons"):
        return
    table = Table(title="parity")
    for column in (
        "arm",
        "seed",
        "backends",
        "verdict",
        "steps",
        "distance / envelope",
        "evidence",
    ):
        table.add_column(column)
    for c in parity["comparisons"]:
        ratio = c["evidence"].get("worst_ratio")
        table.add_row(
            c["arm"],
            str(c["seed"]),
            f"{c['a']} – {c['b']}",
            f"[{COLOURS[c['verdict']]}]{c['verdict']}[/]",
            str(c.get("steps", "")),
            "" if ratio is None else f"{ratio:.2f}",
            evidence(c),
        )
    Console().print(table)


def evidence(c: dict[str, Any]) -> str:
    """One phrase that says why."""
    first = c.get("first_divergence")
    if first:
        return (
            f"first at step {first['step']} (inside until {first['after']}), {first['phase']}, "
            f"{first['tensor']}: {first['distance']:.2e} against {first['envelope']:.2e}"
        )
    if c["reason"] == "trial_missing":
        return ", ".join(f"{name} {status}" for name, status in c["evidence"].items())
    if c["reason"] == "chaotic":
        return f"rounding alone changes the loss visibly from step {c['evidence']['chaotic_from']}"
    if "equivalence" in c["evidence"]:
        test = c["evidence"]["equivalence"]
        return (
            f"accuracy differs by {100 * test['mean']:.2f} points "
            f"[{100 * test['low']:.2f}, {100 * test['high']:.2f}] over {test['seeds']} seeds"
        )
    return str(c["reason"]).replace("_", " ")
