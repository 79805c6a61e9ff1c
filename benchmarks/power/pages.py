"""The pages about the statistical power of a verdict, in both languages, from the measurements."""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from power.figures import (
    Counts,
    counts,
    interval,
    largest_never_found,
    smallest_always_found,
    upper_bound,
)
from power.settings import HORIZONS, MARGIN, PLANTS, UPDATES, Record

TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("pages.toml").read_text("utf-8"))
COMMAND = "python benchmarks/power/run.py --seeds {seeds} --markdown docs"


def format_value(value: float | None) -> str:
    """Format a number with at most two digits: 3e-6, 1.2e-7, 0.85, 16000."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1e6:
        return f"{value:.2f}".rstrip("0").rstrip(".") if value < 100 else f"{value:,.0f}"
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}"


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Page:
    """One page of the figures."""

    def __init__(self, found: Record, lang: str) -> None:
        self.found, self.text = found, TEXTS[lang]
        self.moved = [r for r in found["changes"] if not r["same"]]
        self.outside = [r for r in self.moved if r["verdict"] == "different"]
        self.clean = [r for r in found["clean"] if r["horizon"] == UPDATES]
        self.false = [r for r in self.clean if r["verdict"] == "different"]

    def __str__(self) -> str:
        found, text, seeds = self.found, self.text, self.found["seeds"]
        devices = found["devices"]
        power, by_size = self.power()
        return str(text["page"]).format(
            other=text["other"],
            updates=UPDATES,
            draws=3,
            margin=MARGIN,
            seeds=seeds,
            statements="\n".join(self.statements()),
            changes=self.changes(),
            alarms="\n\n".join([self.alarm(r) for r in self.outside] or [text["no_alarm"]]),
            devices=text["device"].format(listed=text["comma"].join(devices))
            if devices
            else text["no_device"],
            thresholds=self.thresholds(),
            rates=self.rates(),
            planted=len(found["plants"]),
            power=power,
            rates_table=by_size,
            low=interval(seeds, seeds)[0],
            high=interval(0, seeds)[1],
            clean=self.pairs(),
            alarms_of_pairs="\n\n".join(self.alarms_of_pairs()),
            command=COMMAND.format(seeds=seeds),
            **found["versions"],
            cpu=found["cpu"],
            cores=found["cores"],
        )

    def counts_of(self, kind: str, arm: str, horizon: int) -> Counts:
        """Return the counts of an error kind, without seeds at which the unchanged programs are
        already called different."""
        skip = {
            r["seed"]
            for r in self.found["clean"]
            if (r["arm"], r["horizon"], r["verdict"]) == (arm, horizon, "different")
        }
        return counts(self.found["plants"], kind, arm, horizon, skip)

    def limits_of(self, limit: Callable[[Counts], float | None], horizon: int) -> str:
        """Return each kind with its limits, once if both rules have the same."""
        text, items = self.text, []
        for kind, (arms, _) in PLANTS.items():
            known = {arm: format_value(limit(self.counts_of(kind, arm, horizon))) for arm in arms}
            size = " / ".join(
                dict.fromkeys(known.values())
                if len(set(known.values())) == 1
                else [f"{value} ({text['rules'][arm]})" for arm, value in known.items()]
            )
            items.append(text["item"].format(size=size, what=text["short"][kind]))
        return str(text["semicolon"].join(items))

    def bound(self) -> float:
        """Return the upper 95 % bound of the false-alarm rate."""
        wrong, n = len(self.false), len(self.clean)
        return interval(wrong, n)[1] if wrong else upper_bound(n)

    def statements(self) -> list[str]:
        text, moved = self.text, self.moved
        covered = text["covered"].format(
            n=len(moved),
            same=len(self.found["changes"]) - len(moved),
            outside=len(self.outside),
            median=format_value(statistics.median(r["ratio"] for r in moved)),
            margin=MARGIN,
            largest=format_value(max(r["ratio"] for r in moved if r not in self.outside)),
            bare=format_value(max(r["all_draws"]["ratio"] for r in moved)),
        )
        found = [
            text["found"].format(
                when=text[f"when{h}"], listed=self.limits_of(smallest_always_found, h)
            )
            for h in (1, UPDATES)
        ]
        passes = text["passes"].format(listed=self.limits_of(largest_never_found, UPDATES))
        rate = text["alarm_rate"].format(n=len(self.clean), k=len(self.false), bound=self.bound())
        return [covered, *found, passes, rate]

    def changes(self) -> str:
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for row in self.found["changes"]:
            groups.setdefault((row["group"], row["backend"], row["change"]), []).append(row)
        order = list(self.text["groups"])
        rows = []
        for (group, backend, change), mine in sorted(
            groups.items(), key=lambda one: (order.index(one[0][0]), one[0][1] != "torch")
        ):
            ratios, bare = [r["ratio"] for r in mine], [r["all_draws"]["ratio"] for r in mine]
            wrong, same = (
                sum(r["verdict"] == "different" for r in mine),
                sum(r["same"] for r in mine),
            )
            rows.append(
                [
                    self.text["groups"][group],
                    backend,
                    f"`{change}`",
                    str(len(mine)),
                    str(same),
                    format_value(statistics.median(ratios)),
                    format_value(max(ratios)),
                    format_value(max(bare)),
                    str(wrong),
                ]
            )
        return table(self.text["changes_head"], rows)

    def alarm(self, row: Record) -> str:
        bare, ratio = format_value(row["all_draws"]["ratio"]), format_value(row["ratio"])
        return str(self.text["alarm"].format(**row | row["first"] | {"ratio": ratio}, bare=bare))

    def alarms_of_pairs(self) -> list[str]:
        sides = {"backend": "torch – mindspore", "change": "–"}
        found = [self.alarm({**r, **sides}) for r in self.false]
        if any(r["all_draws"]["verdict"] == "equal" for r in [*self.outside, *self.false]):
            found.append(self.text["alarm_why"])
        return found

    def thresholds(self) -> str:
        text, known = self.text, self.found["thresholds"]
        steps = list(next(iter(known.values()))["phases"]["loss"])
        head = "|".join([text["phase_head"], *(text["update"].format(s=s) for s in steps)])
        return table(
            head,
            [
                [text["rules"][arm], f"`{phase}`", *(format_value(row[s]) for s in steps)]
                for arm, one in known.items()
                for phase, row in one["phases"].items()
            ],
        )

    def rates(self) -> str:
        text = self.text
        return str(
            text["comma"].join(
                text["rate"].format(rule=text["rules"][arm], size=format_value(one["rate"]))
                for arm, one in self.found["thresholds"].items()
            )
        )

    def power(self) -> tuple[str, str]:
        """Return the limits of every error and rule, and the counts for the sizes between them."""
        text, limits, by_size = self.text, [], []
        for kind, arm in ((kind, arm) for kind, (arms, _) in PLANTS.items() for arm in arms):
            rule = text["rules"][arm]
            cells = [
                format_value(f(self.counts_of(kind, arm, h)))
                for h in HORIZONS
                for f in (largest_never_found, smallest_always_found)
            ]
            limits.append([text["kinds"][kind], rule, *cells])
            for horizon in HORIZONS:
                mine = self.counts_of(kind, arm, horizon)
                least, most = (
                    largest_never_found(mine) or 0.0,
                    smallest_always_found(mine) or math.inf,
                )
                shown = [
                    f"{format_value(d)}:&nbsp;{k}/{n}"
                    for d, (k, n) in sorted(mine.items())
                    if least <= d <= most
                ]
                by_size.append([text["short"][kind], rule, str(horizon), " ".join(shown)])
        head = f"{text['table_head']}|δ: k/n"
        return table(text["power_head"], limits), table(head, by_size)

    def pairs(self) -> str:
        wrong = len(self.false)
        kk, nn = wrong + len(self.outside), len(self.clean) + len(self.moved)
        low, high = interval(kk, nn)
        return str(
            self.text["clean"].format(
                n=len(self.clean),
                seeds=self.found["seeds"],
                k=wrong,
                largest=format_value(max(r["ratio"] for r in self.clean)),
                bound=self.bound(),
                m=len(self.moved),
                kk=kk,
                nn=nn,
                low=low,
                high=high,
            )
        )


def write(found: Record, folder: Path) -> None:
    """Write ``power.md`` and ``power.zh.md``, without blank lines of empty parts."""
    for lang, name in (("en", "power.md"), ("zh", "power.zh.md")):
        text = re.sub(r"\n{3,}", "\n\n", str(Page(found, lang)))
        (folder / name).write_text(re.sub(r"(?<=\d)%", " %", text), "utf-8")
