"""Render the catalogue as one Markdown page per language: its data, code and measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dualml.common.words import section_messages
from dualml.parity.diffs.code import helper_source, package_of, probe_code
from dualml.parity.diffs.compare import EntryResult
from dualml.parity.diffs.entry import TOPICS, DifferenceEntry, Lang
from dualml.parity.diffs.messages import (
    format_silence,
    is_silent,
    listing_heading,
    measured_sentence,
    table_cells,
)

SIDES = ("torch", "mindspore")
PAGES: dict[Lang, str] = {"en": "differences.md", "zh": "differences.zh.md"}

#: File with the introduction of a page, for each language.
INTRO = "intro.{lang}.md"


def render_page(
    entries: Sequence[DifferenceEntry],
    lang: Lang,
    results: Mapping[str, EntryResult] | None = None,
    versions: Mapping[str, str | None] | None = None,
) -> str:
    """Return the catalogue page of one language as Markdown.

    Args:
        results: entry name → measured result; None leaves the measured places empty.
        versions: framework → the version that was measured.
    """
    intro = Path(__file__).with_name(INTRO.format(lang=lang)).read_text("utf-8")
    silent = sum(map(is_silent, entries))
    words = section_messages(lang, "diffs")
    parts = [intro.strip(), words["page.count"].format(n=len(entries), silent=silent)]
    measured_with = ", ".join(f"{name} {version}" for name, version in (versions or {}).items())
    parts.append(words["page.here"].format(versions=measured_with))
    by_topic = {topic: [entry for entry in entries if entry.topic == topic] for topic in TOPICS}
    topics = {topic: rows for topic, rows in by_topic.items() if rows}
    parts += ["\n".join(render_table(rows, topic, lang, results)) for topic, rows in topics.items()]
    for topic, rows in topics.items():
        parts.append(f"## {words[f'topic.{topic}']}")
        parts += render_helpers(rows, lang)
        for entry in rows:
            parts += render_section(entry, lang, results[entry.name] if results else None)
    return "\n\n".join(parts) + "\n"


def render_table(
    entries: Sequence[DifferenceEntry],
    topic: str,
    lang: Lang,
    results: Mapping[str, EntryResult] | None,
) -> Iterator[str]:
    """Yield the lines of the Markdown table of one topic, with a row for each entry and its
    measured effect; the cells of the effect are empty without ``results``."""
    words = section_messages(lang, "diffs")
    head = (words["entry"], words["what"], words["silent"], words["effect"], words["after"])
    yield f"**{words[f'topic.{topic}']}**\n"
    yield render_row(head)
    yield render_row(["---"] * len(head))
    for entry in entries:
        amounts = table_cells(results[entry.name], lang) if results else ("", "")
        title = getattr(entry.title, lang)
        yield render_row(
            [f"[{entry.name}](#{entry.name})", title, format_silence(entry, words), *amounts]
        )


def render_row(texts: Sequence[str]) -> str:
    """Return the Markdown table row of these cells; ``|`` inside them is escaped."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def render_section(entry: DifferenceEntry, lang: Lang, result: EntryResult | None) -> Iterator[str]:
    """Yield the Markdown blocks of one entry: its texts, measurement, code and sources."""
    words = section_messages(lang, "diffs")
    yield f"### {entry.name}"
    brackets = " ({})" if lang == "en" else "（{}）"
    yield f"**{getattr(entry.title, lang)}**" + brackets.format(
        format_silence(entry, words, ".long")
    )
    facts = {words[side]: getattr(getattr(entry, side), lang) for side in SIDES}
    facts[words["remedy"].capitalize()] = getattr(entry.remedy, lang)
    lines = [f"- **{name}**{words['colon']}{text}" for name, text in facts.items()]
    measured = measured_sentence(result, lang, brief=True) if result else ""
    # Measurements appear only here and in the last two columns of the tables, so that a test can
    # compare the rest of the page with the data.
    lines.append(words["page.measured"] + measured)
    lines.append(
        f"- **{words['sources'].capitalize()}**{words['colon']}"
        + words["join"].join(f"`{source}`" for source in entry.sources)
    )
    lines.append(
        f"- **{words['seen'].capitalize()}**{words['colon']}{words['comma'].join(entry.seen)}"
    )
    if entry.ranks > 1:
        lines.append(f"- {words['ranks'].format(n=entry.ranks)}")
    yield "\n".join(lines)
    yield from render_listings(entry, lang)


def render_listings(entry: DifferenceEntry, lang: Lang) -> Iterator[str]:
    """Yield the Markdown blocks with the folded code of both frameworks and, where it differs, the
    code that makes them equal."""
    yield f"<details><summary>{section_messages(lang, 'diffs')['listing']}</summary>"
    for side in SIDES:
        for variant, text in probe_code(entry, package_of(side)).items():
            yield from render_listing(side, variant, text, lang)
    yield "</details>"


def render_helpers(entries: Sequence[DifferenceEntry], lang: Lang) -> Iterator[str]:
    """Yield the Markdown blocks with the folded helper code that the probes of one topic use;
    nothing if there is none."""
    parts = {side: helper_source(entries, package_of(side)) for side in SIDES}
    if any(parts.values()):
        yield f"<details><summary>{section_messages(lang, 'diffs')['listing.topic']}</summary>"
        for side, text in parts.items():
            if text:
                yield from render_listing(side, "helpers", text, lang)
        yield "</details>"


def render_listing(side: str, variant: str, text: str, lang: Lang) -> Iterator[str]:
    """Yield the Markdown blocks of one code listing: its heading, and the code."""
    words = section_messages(lang, "diffs")
    yield f"{listing_heading(side, variant, words)}{words['colon'].rstrip()}"
    yield f"```python\n{text}\n```"
