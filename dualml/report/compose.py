"""Compose the page of a run: first the topic that answers its question, then all topics in
order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from dualml.common.words import Messages
from dualml.experiment.small_data import small_data_values
from dualml.experiment.store.run import RunData
from dualml.report import blocks, ranks
from dualml.report.blocks import Block, Bullets, Fold, Item, Page, Prose, SectionBlock, Table
from dualml.report.figure import Figure
from dualml.report.headline import headline
from dualml.report.topics import REFERENCE, ReportSection, topics

#: Maximum number of rows of a table that is not folded.
MAX_UNFOLDED_ROWS = 8
#: Minimum and maximum number of findings on the first screen.
MIN_FINDINGS, MAX_FINDINGS = 3, 5
#: Width of the figure there and height of its plot areas, in pixels.
WIDE, HIGH = 610, 210


@dataclass(frozen=True)
class ComposedSection:
    """The content of one section of the page: its texts, its evidence with ``anchors``, its
    sentences."""

    topic: ReportSection
    title: str
    intro: str
    evidence: Sequence[Block]
    findings: Sequence[Item]
    priority: int
    anchors: set[str]


def compose(run: RunData, words: Messages) -> Page:
    """Return the page of a run in the language of the messages: the first screen with the verdict,
    the notices and the leading results, then the sections of results, then the reference
    sections."""
    every = (_compose_section(topic, run, words) for topic in topics() if topic.when(run))
    parts = [part for part in every if part.evidence or part.findings]
    results = [part for part in parts if part.topic.group == "results"]
    results.sort(key=lambda part: -part.priority)  # the topic that answers the question comes first
    lead = results[0] if results and results[0].priority else None
    # the first figure and the first table of the leading topic
    every_block = list(blocks.walk(lead.evidence)) if lead else []
    firsts = ([b for b in every_block if isinstance(b, kind)][:1] for kind in (Figure, Table))
    answer = [block for first in firsts for block in first]
    anchors = {anchor for part in parts for anchor in part.anchors}
    # by order, but the topic of the first screen continues directly below it
    read = sorted(results, key=lambda p: (p is not lead, p.topic.order, p.topic.name))
    sections = [_section(part, answer, anchors, words) for part in read]
    for name in REFERENCE:
        folds = [
            Fold(p.title, [*_prose(p.intro), *_bullets(p.findings), *p.evidence], p.topic.name)
            for p in parts
            if p.topic.group == name
        ]
        if folds:
            intro = _prose(words.get(f"intro.{name}", ""), small=True)
            sections.append(SectionBlock(name, words(f"page.part.{name}"), [*intro, *folds]))
    screen = [_shrink_figure(block) for block in answer]
    screen[1:1] = _bullets(_top_findings(results, anchors))
    first = [blocks.RowBlock(screen)] if screen else []
    top = SectionBlock("summary", "", [*_status(run, words), *first])
    return Page(
        lang=words.lang,
        title=localized_text(run.experiment.get("title"), words)
        or str(run.meta.get("name") or "dualml"),
        question=localized_text(run.experiment.get("question"), words),
        blocks=[top, *sections],
        footer=words("page.footer", version=run.meta.get("dualml") or "–"),
    )


def _compose_section(topic: ReportSection, run: RunData, words: Messages) -> ComposedSection:
    """Compose the content of a section, without empty tables; no evidence if only notices
    remain."""
    kept = [b for b in topic.evidence(run, words) if not isinstance(b, Table) or b.rows]
    evidence = [] if all(isinstance(block, blocks.Notice) for block in kept) else kept
    title = words.get(f"topic.{topic.name}", topic.name)
    intro = words.get(f"intro.{topic.name}", "")
    findings = list(topic.findings(run, words))
    return ComposedSection(
        topic, title, intro, evidence, findings, topic.priority(run), _anchors(evidence)
    )


def _prose(text: str, *, small: bool = False) -> list[Block]:
    """Return a text as one paragraph block; no block for an empty text."""
    return [Prose(text, small)] if text else []


def _bullets(items: Sequence[Item]) -> list[Block]:
    """Return the items as one bulleted list; no block without items."""
    return [Bullets(items)] if items else []


# --- the first screen -----------------------------------------------------------------------------


def _status(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield what comes before all numbers: the verdict, the notices, the number of trials that
    failed if there are any, and the findings stored with the run."""
    tone, sentence = headline(run, words)
    yield blocks.VerdictBlock(sentence, tone)
    yield from map(blocks.Notice, _notices(run, words))
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        some, link = words("status.some", ok=good, n=total), words("table.failures")
        yield Bullets([Item(some, True, "table-failures", "status.some", link)])
    if run.findings:
        texts = [Item(localized_text(text, words)) for text in run.findings]
        yield blocks.Card(words("page.findings"), [Bullets(texts)])


def _notices(run: RunData, words: Messages) -> Iterator[str]:
    """Yield warnings about the data, the size of the run, folders of several machines, and damaged
    or changed records."""
    data, wanted = run.meta.get("data") or {}, run.experiment.get("data") or {}
    notice = data.get("notice")
    if notice:
        text = localized_text(notice, words)
        yield text if isinstance(notice, dict) else words("page.message", text=text)
    elif data.get("source") == "embedded" and wanted.get("name") not in (None, data.get("name")):
        yield words("page.embedded", wanted=wanted["name"], name=data.get("name"))
    if few := small_data_values(run.experiment, data):
        yield words("notice.small", **few)
    if run.experiment.get("quick"):
        yield words(f"say.caveats.{'quick_ranks' if ranks.is_distributed(run) else 'quick'}")
    if len(run.folders) > 1:
        yield words("page.machines", n=len(run.folders))
    yield from (words("page.changed", line=line) for line in run.changed)
    lines = run.unreadable
    for line in lines[:MAX_FINDINGS]:
        yield words("page.unreadable", line=line)
    if len(lines) > MAX_FINDINGS:
        yield words("page.unreadable_more", n=len(lines) - MAX_FINDINGS)


def _shrink_figure(block: Block) -> Block:
    """Return a figure for the first screen, at most `WIDE` wide and with rows of panels at most
    `HIGH` high together, never enlarged; other blocks unchanged."""
    if not isinstance(block, Figure):
        return block
    heights = [p.height if p else 0.0 for p in block.panels]
    starts = range(0, len(heights), block.columns)
    high = sum(max(heights[k : k + block.columns]) for k in starts)
    scale = min(1.0, HIGH / high) if high else 1.0
    panels = [p and replace(p, height=scale * p.height) for p in block.panels]
    return replace(block, panels=panels, width=min(block.width, WIDE))


def _top_findings(results: Sequence[ComposedSection], anchors: set[str]) -> list[Item]:
    """Return the sentences for the first screen: the first of each leading topic (one with a
    priority), then the second ones, up to `MAX_FINDINGS`; other topics fill up to `MIN_FINDINGS`.
    Warnings are left out. Each links to its evidence, or to its topic if the evidence is not on the
    page."""
    linked = [
        [
            replace(x, target=x.target if x.target in anchors else p.topic.name, link=p.title)
            for x in p.findings
            if not x.warning
        ]
        for p in results
    ]
    leading = [items for items, part in zip(linked, results, strict=True) if part.priority]
    chosen = [item for turn in zip_longest(*leading) for item in turn if item is not None]
    more = [item for items in linked for item in items if item not in chosen]
    return (chosen[:MAX_FINDINGS] + more)[: max(MIN_FINDINGS, min(len(chosen), MAX_FINDINGS))]


# --- sections -------------------------------------------------------------------------------------


def _section(
    part: ComposedSection, answer: Sequence[Block], anchors: set[str], words: Messages
) -> SectionBlock:
    """Return a section: introduction, sentences and evidence without the blocks of ``answer``,
    which the first screen shows. Long tables are folded behind their captions; a sentence is placed
    above the block it refers to."""
    here = part.anchors - _anchors(answer)
    notices = [block for block in part.evidence if isinstance(block, blocks.Notice)]
    general = []
    for item in part.findings:
        if item.target not in anchors:
            general.append(replace(item, target=""))
        elif item.target not in here:  # its evidence is in another section
            see = words(f"page.see.{item.target.partition('-')[0]}")
            general.append(replace(item, link=item.link or see))
    out = [*_prose(part.intro, small=True), *notices, *_bullets(general)]
    for block in part.evidence:
        if block not in notices and block not in answer:
            inside = _anchors([block]) & here
            out += _bullets([replace(x, target="") for x in part.findings if x.target in inside])
            if isinstance(block, Table) and len(block.rows) > MAX_UNFOLDED_ROWS:
                block = Fold(block.caption, [block])
            out.append(block)
    return SectionBlock(part.topic.name, part.title, out)


def _anchors(evidence: Sequence[Block]) -> set[str]:
    """Return the anchors of all blocks in a tree."""
    return {a for block in blocks.walk(evidence) if (a := blocks.anchor(block))}


def localized_text(text: object, words: Messages) -> str:
    """Return a text of the experiment file, which is a string or a mapping with one per language;
    without the page's language the English or else the first one, empty for None."""
    if isinstance(text, dict):
        return str(text.get(words.lang) or text.get("en") or next(iter(text.values()), ""))
    return str(text or "")
