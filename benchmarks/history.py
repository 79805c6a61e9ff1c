"""The history of the benchmark ratios, in ``history.json``.

    python benchmarks/history.py          # add what docs/benchmarks.md has now
    python benchmarks/history.py --git    # make the file again from every revision of the page

A row is added when its ratio or its machine changed: ``date``, ``machine`` (processor, versions),
``section``, ``what``, ``against``, ``ratio`` (ours over other, median), ``quartiles``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from results import results

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT = "docs/benchmarks.md", ROOT / "benchmarks" / "history.json"
RATIO = re.compile(r"([\d.]+) \(([\d.]+) – ([\d.]+)\)")
Row = dict[str, str | float | list[float]]


def rows(page: str, date: str) -> Iterator[Row]:
    """Return the measured ratios of a revision of the page."""
    head, *tables = (results(page) or "").split("\n### ")
    facts = dict(re.findall(r"^- (cpu|versions): (.*)$", head, re.M))
    machine = ", ".join(facts.values())
    for table in tables:
        section, _, lines = table.partition("\n")
        for line in lines.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) > 4 and (ratio := RATIO.fullmatch(cells[4])):
                yield {
                    "date": date,
                    "machine": machine,
                    "section": section,
                    "what": cells[0],
                    "against": cells[1],
                    "ratio": float(ratio[1]),
                    "quartiles": [float(ratio[2]), float(ratio[3])],
                }


def added(history: list[Row], new: Iterator[Row]) -> list[Row]:
    """Return ``history`` with the new rows that differ from the last of their kind."""
    key = ("section", "what", "against")
    last = {tuple(row[name] for name in key): row for row in history}
    whole = list(history)
    for row in new:
        old = last.get(tuple(row[name] for name in key), {})
        if any(row[name] != old.get(name) for name in ("ratio", "quartiles", "machine")):
            whole.append(row)
    return whole


def revisions() -> Iterator[tuple[str, str]]:
    """Yield date and text of every revision of the page, oldest first."""
    log = git("log", "--reverse", "--format=%H %as", "--", PAGE)
    for line in log.splitlines():
        commit, date = line.split()
        yield date, git("show", f"{commit}:{PAGE}")


def git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--git", action="store_true", help="from every revision of the page")
    history: list[Row] = []
    if parser.parse_args().git:
        for date, page in revisions():
            history = added(history, rows(page, date))
    else:
        history = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else []
        today = datetime.date.today().isoformat()
        history = added(history, rows((ROOT / PAGE).read_text("utf-8"), today))
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in history)
    KEPT.write_text(f"[\n{lines}\n]\n", "utf-8")
    print(f"{len(history)} rows → {KEPT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
