"""Render the catalogue as one Markdown page per language: its data, code and measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dualml.diffs.code import code, package_of, used
from dualml.diffs.compare import Found
from dualml.diffs.entry import TOPICS, Entry, Lang
from dualml.diffs.words import cells, heading, is_silent, mark, sentence
from dualml.words import phrases

SIDES = ("torch", "mindspore")
PAGES: dict[Lang, str] = {"en": "differences.md", "zh": "differences.zh.md"}

#: File with the introduction of a page, for each language.
INTRO = "intro.{lang}.md"


def page(
    entries: Sequence[Entry],
    lang: Lang,
    results: Mapping[str, Found] | None = None,
    versions: Mapping[str, str | None] | None = None,
) -> str:
    """Render the catalogue page of one language.

    Args:
        results: entry name → measured result; None leaves the measured places empty.
        versions: framework → the version that was measured.
    """
    intro = Path(__file__).with_name(INTRO.format(lang=lang)).read_text("utf-8")
    silent = sum(map(is_silent, entries))
    words = phrases(lang, "diffs")
    parts = [intro.strip(), words["page.count"].format(n=len(entries), silent=silent)]
    measured_with = ", ".join(f"{name} {version}" for name, version in (versions or {}).items())
    parts.append(words["page.here"].format(versions=measured_with))
    by_topic = {topic: [entry for entry in entries if entry.topic == topic] for topic in TOPICS}
    topics = {topic: rows for topic, rows in by_topic.items() if rows}
    parts += ["\n".join(table(rows, topic, lang, results)) for topic, rows in topics.items()]
    for topic, rows in topics.items():
        parts.append(f"## {words[f'topic.{topic}']}")
        parts += shared(rows, lang)
        for entry in rows:
            parts += section(entry, lang, results[entry.name] if results else None)
    return "\n\n".join(parts) + "\n"


def table(
    entries: Sequence[Entry], topic: str, lang: Lang, results: Mapping[str, Found] | None
) -> Iterator[str]:
    """Render the table of contents of one topic, with the measured effect of each entry."""
    words = phrases(lang, "diffs")
    head = (words["entry"], words["what"], words["silent"], words["effect"], words["after"])
    yield f"**{words[f'topic.{topic}']}**\n"
    yield row(head)
    yield row(["---"] * len(head))
    for entry in entries:
        amounts = cells(results[entry.name], lang) if results else ("", "")
        title = getattr(entry.title, lang)
        yield row([f"[{entry.name}](#{entry.name})", title, mark(entry, words), *amounts])


def row(texts: Sequence[str]) -> str:
    """Render the cells of one Markdown table row."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def section(entry: Entry, lang: Lang, result: Found | None) -> Iterator[str]:
    """Render one entry: its texts, measurement, code and sources."""
    words = phrases(lang, "diffs")
    yield f"### {entry.name}"
    brackets = " ({})" if lang == "en" else "（{}）"
    yield f"**{getattr(entry.title, lang)}**" + brackets.format(mark(entry, words, ".long"))
    facts = {words[side]: getattr(getattr(entry, side), lang) for side in SIDES}
    facts[words["remedy"].capitalize()] = getattr(entry.remedy, lang)
    lines = [f"- **{name}**{words['colon']}{text}" for name, text in facts.items()]
    measured = sentence(result, lang, brief=True) if result else ""
    # Measurements appear only here and in the last two columns of the tables, so that a test can
    # compare the rest of the page with the data.
    lines.append(words["page.measured"] + measured)
    lines.append(f"- **{words['sources'].capitalize()}**{words['colon']}"
                 + words["join"].join(f"`{source}`" for source in entry.sources))  # fmt: skip
    lines.append(
        f"- **{words['seen'].capitalize()}**{words['colon']}{words['comma'].join(entry.seen)}"
    )
    if entry.ranks > 1:
        lines.append(f"- {words['ranks'].format(n=entry.ranks)}")
    yield "\n".join(lines)
    yield from listings(entry, lang)


def listings(entry: Entry, lang: Lang) -> Iterator[str]:
    """Render the folded code of both frameworks and, where it differs, the code that makes them
    equal."""
    yield f"<details><summary>{phrases(lang, 'diffs')['listing']}</summary>"
    for side in SIDES:
        for variant, text in code(entry, package_of(side)).items():
            yield from listing(side, variant, text, lang)
    yield "</details>"


def shared(entries: Sequence[Entry], lang: Lang) -> Iterator[str]:
    """Render the folded helper code that the probes of one topic use."""
    parts = {side: used(entries, package_of(side)) for side in SIDES}
    if any(parts.values()):
        yield f"<details><summary>{phrases(lang, 'diffs')['listing.topic']}</summary>"
        for side, text in parts.items():
            if text:
                yield from listing(side, "helpers", text, lang)
        yield "</details>"


def listing(side: str, variant: str, text: str, lang: Lang) -> Iterator[str]:
    """Render one code listing under its heading."""
    words = phrases(lang, "diffs")
    yield f"{heading(side, variant, words)}{words['colon'].rstrip()}"
    yield f"```python\n{text}\n```"
