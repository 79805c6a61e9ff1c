"""The contents of a report page as data: its tables by name and its sentences by key."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Bullets, Item, Page, SectionBlock, Table, walk
from dualml.report.compose import compose
from dualml.report.figure import Figure
from dualml.report.topics import topics


@cache
def page(folder: Path, lang: str = "en") -> Page:
    """Return the page of a run folder; cached, because the folder no longer changes."""
    return compose(load([folder]), Messages(lang))


def tables(page: Page) -> dict[str, Table]:
    every = [block for block in walk(page.blocks) if isinstance(block, Table)]
    assert len({table.name for table in every}) == len(every)
    return {table.name: table for table in every}


def sections(html: str) -> list[str]:
    """Return the anchors of a page's sections, in order."""
    return re.findall(r'<section id="([^"]+)"', html)


def row(table: Table, *texts: str) -> dict[str, str]:
    """Return column → text of the only row of a table that contains all of these texts."""
    lines = [line for line in table.cells if set(texts) <= {cell.text for cell in line}]
    assert len(lines) == 1, (texts, len(lines))
    return dict(zip([c.label for c in table.columns], [c.text for c in lines[0]], strict=True))


def sentences(page: Page) -> dict[str, list[str]]:
    """Return key → sentences in the sections; the first screen repeats some of them."""
    shown = [b for b in page.blocks if isinstance(b, SectionBlock) and b.name != "summary"]
    out: dict[str, list[str]] = {}
    for block in walk(shown):
        for item in block.items if isinstance(block, Bullets) else ():
            out.setdefault(item.key, []).append(item.text)
    return out


def findings(run: RunData, lang: str = "en") -> list[Item]:
    """Return every sentence of a run in reading order, without drawing figures."""
    words = Messages(lang)
    shown = [topic for topic in topics() if topic.when(run)]
    return [item for topic in shown for item in topic.findings(run, words)]


def findings_by_key(folder: Path, lang: str = "en") -> dict[str, list[str]]:
    """Return key → sentences of a folder as it is now."""
    out: dict[str, list[str]] = {}
    for item in findings(load([folder]), lang):
        out.setdefault(item.key, []).append(item.text)
    return out


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, sorted: sentences of two languages may order them
    differently."""
    kept = "".join(c if c.isdigit() or c in ".,⁻×" else " " for c in text)
    return sorted(w for part in kept.split() if (w := part.strip(".,")) and w[0].isdigit())


def same_in_both_languages(run: RunData) -> None:
    """Assert that both languages have the same sentences with the same numbers."""
    en, zh = (findings(run, lang) for lang in ("en", "zh"))
    assert [(x.key, x.target, x.warning) for x in en] == [(x.key, x.target, x.warning) for x in zh]
    for x, y in zip(en, zh, strict=True):
        assert numbers(x.text) == numbers(y.text), x.key


def evidence(run: RunData, topic: str, words: Messages) -> list[Block]:
    """Return the evidence blocks of a topic, including nested ones."""
    chosen = next(each for each in topics() if each.name == topic)
    return list(walk(list(chosen.evidence(run, words))))


def evidence_tables(run: RunData, topic: str, words: Messages) -> dict[str, Table]:
    return {b.name: b for b in evidence(run, topic, words) if isinstance(b, Table)}


def evidence_figures(run: RunData, topic: str, words: Messages) -> list[Figure]:
    return [block for block in evidence(run, topic, words) if isinstance(block, Figure)]
