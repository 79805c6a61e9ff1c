"""The pages about planted differences, in both languages, from what was measured."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

TEXTS = tomllib.loads(Path(__file__).with_name("pages.toml").read_text("utf-8"))
BREAK = "|---|---|---|---|---|---|---|"


def mark(right: bool) -> str:
    """Return ✓ or ✗."""
    return "" if right else " ✗"


def summary(known: dict[str, Any], lang: str) -> list[str]:
    """Return the two sentences with all figures."""
    rows, clean, text = known["plants"], known["clean"], TEXTS[lang]
    n = len(rows)
    right = {
        key: sum(bool(r[key]) for r in rows)
        for key in ("detected", "right_side", "right_phase", "right_cause")
    }
    lines = []
    if n:
        lines.append(
            text["sum"].format(
                n=n,
                detected=right["detected"],
                side=right["right_side"],
                phase=right["right_phase"],
                cause=right["right_cause"],
                share=right["right_cause"] / n,
            )
        )
    if clean:
        ratios = sorted(c["ratio"] for c in clean if c["ratio"] is not None)
        arms, seeds = ({c[key] for c in clean} for key in ("arm", "seed"))
        lines.append(
            text["clean"].format(
                n=len(clean),
                arms=len(arms),
                seeds=len(seeds),
                sizes=" / ".join(map(str, sorted({c["ranks"] for c in clean}))),
                alarms=sum(c["verdict"] == "different" for c in clean),
                bound=3 / len(clean),
                median=ratios[len(ratios) // 2],
                largest=ratios[-1],
            )
        )
    return lines


def page(known: dict[str, Any], lang: str) -> str:
    text = TEXTS[lang]
    plants = len({r["plant"] for r in known["plants"]})
    lines = [text["title"], "", text["other"], "", text["intro"].format(plants=plants), ""]
    lines += ["```bash", text["command"], "```", ""]
    for sentence in summary(known, lang):
        lines += [sentence, ""]
    if note := known.get("note", {}).get(lang):
        lines += [note, ""]
    lines += [text["rows"], "", text["read"], "", text["head"], BREAK]
    for r in known["plants"]:
        verdict = (r["verdict"] or r["status"]) + mark(r["detected"] and r["right_side"])
        phase = (r["phase"] or "–") + mark(r["right_phase"])
        cause = (r["cause"] or "–") + mark(r["right_cause"])
        score = "–" if r["score"] is None else f"{r['score']:.1%}"
        told = (
            r["plant"],
            r["about"].replace("|", "‖"),
            r["backend"],
            verdict,
            phase,
            cause,
            score,
        )
        lines.append(f"| {' | '.join(told)} |")
    if refused := known.get("refused"):
        lines += ["", text["refusals"], "", text["apart"].format(n=len(refused)), ""]
        lines += [text["refusedhead"], "|---|---|---|---|"]
        for r in refused:
            told = (r["plant"], r["about"], r["backend"], r["status"] + mark(r["refused"]))
            lines.append(f"| {' | '.join(told)} |")
    if known["clean"]:
        lines += ["", text["what"], "", text["why"], "", text["cleanhead"], "|---|---|---|---|---|"]
        arms = Counter(c["arm"] for c in known["clean"])
        for arm, count in arms.items():
            mine = [c for c in known["clean"] if c["arm"] == arm]
            equal = sum(c["verdict"] == "equal" for c in mine)
            largest = max(c["ratio"] or 0 for c in mine)
            lines.append(f"| {arm} | {mine[0]['ranks']} | {count} | {equal} | {largest:.2f} |")
    return re.sub(r"(?<=\d)%", " %", "\n".join(lines)) + "\n"


def write(known: dict[str, Any], folder: Path) -> None:
    """Write ``planted.md`` and ``planted.zh.md``."""
    (folder / "planted.md").write_text(page(known, "en"), "utf-8")
    (folder / "planted.zh.md").write_text(page(known, "zh"), "utf-8")
