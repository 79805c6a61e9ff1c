"""A run as a tree of blocks: what answers its question first, then topic by topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from dualml.report import blocks, ranks
from dualml.report.blocks import Block, Bullets, Fold, Item, Page, Prose, Section, Table
from dualml.report.headline import headline
from dualml.report.topics import REFERENCE, Topic, topics
from dualml.store.run import Run
from dualml.words import Words

#: Rows of a table that is shown without being asked for.
SHORT = 8
#: Findings on the first screen.
FEWEST, MOST = 3, 5
#: Pixels of the figure there, and of what its axes enclose.
WIDE, HIGH = 610, 210


@dataclass(frozen=True)
class Part:
    """A topic with what it has to say of this run."""

    topic: Topic
    title: str
    intro: str
    evidence: Sequence[Block]
    findings: Sequence[Item]
    leads: int


def compose(run: Run, words: Words) -> Page:
    """The page of a run in the language of ``words``."""
    parts = [part for part in _parts(run, words) if part.evidence or part.findings]
    results = [part for part in parts if part.topic.part == "results"]
    results.sort(key=lambda part: -part.leads)  # what answers the question comes first
    lead = results[0] if results and results[0].leads else None
    answer = _answer(lead)
    anchors = {anchor for part in parts for anchor in _anchors(part.evidence)}
    sections = [_section(part, answer, anchors, words) for part in _reading_order(results, lead)]
    for name in REFERENCE:
        folds = [_fold(part) for part in parts if part.topic.part == name]
        if folds:
            intro = words.either(f"intro.{name}", "")
            text = [Prose(intro, small=True)] if intro else []
            sections.append(Section(name, words(f"page.part.{name}"), [*text, *folds]))
    top = Section("summary", "", [*_status(run, words), *_first_screen(answer, results, anchors)])
    return Page(
        lang=words.lang,
        title=own_text(run.experiment.get("title"), words) or str(run.meta.get("name") or "dualml"),
        question=own_text(run.experiment.get("question"), words),
        blocks=[top, *sections],
        footer=words("page.footer", version=run.meta.get("dualml") or "–"),
    )


def _parts(run: Run, words: Words) -> Iterator[Part]:
    for topic in topics():
        if not topic.when(run):
            continue
        yield Part(
            topic,
            words(f"topic.{topic.name}"),
            words.either(f"intro.{topic.name}", ""),
            _shown(topic.evidence(run, words)),
            list(topic.findings(run, words)),
            topic.leads(run),
        )


def _shown(evidence: Iterable[Block]) -> list[Block]:
    """Without tables that have no rows; nothing where only notices are left."""
    kept = [block for block in evidence if not isinstance(block, Table) or block.rows]
    return kept if any(not isinstance(block, blocks.Notice) for block in kept) else []


def _reading_order(results: Sequence[Part], lead: Part | None) -> list[Part]:
    """By place, but what the first screen begins is continued beneath it."""
    return sorted(results, key=lambda part: (part is not lead, part.topic.place, part.topic.name))


# --- the first screen -----------------------------------------------------------------------------


def _status(run: Run, words: Words) -> Iterator[Block]:
    """Verdict, what a reader must know before the numbers, what lies behind differences."""
    tone, sentence = headline(run, words)
    yield blocks.Verdict(sentence, tone)
    yield from map(blocks.Notice, _notices(run, words))
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        some = words("status.some", ok=good, n=total)
        link = words("status.caption")
        yield Bullets([Item(some, True, "table-failures", "status.some", link)])
    if run.findings:
        texts = [str(text.get(words.lang) or text.get("en") or "") for text in run.findings]
        yield blocks.Card(words("page.findings"), [Bullets([Item(text) for text in texts])])


def _notices(run: Run, words: Words) -> Iterator[str]:
    data, wanted = run.meta.get("data") or {}, run.experiment.get("data") or {}
    notice = data.get("notice")
    if notice:
        text = own_text(notice, words)
        yield text if isinstance(notice, dict) else words("page.message", text=text)
    elif data.get("source") == "embedded" and wanted.get("name") not in (None, data.get("name")):
        yield words("page.embedded", wanted=wanted["name"], name=data.get("name"))
    if run.experiment.get("quick"):
        yield words(f"say.caveats.{'quick_ranks' if ranks.distributed(run) else 'quick'}")
    if len(run.folders) > 1:
        yield words("page.machines", n=len(run.folders))
    lines = run.unreadable
    for line in lines[:MOST]:
        yield words("page.unreadable", line=line)
    if len(lines) > MOST:
        yield words("page.unreadable_more", n=len(lines) - MOST)


def _answer(lead: Part | None) -> list[Block]:
    """The first figure and the first table of the topic that answers best."""
    if lead is None:
        return []
    every = list(blocks.walk(lead.evidence))
    figure = next((b for b in every if isinstance(b, blocks.Figure)), None)
    table = next((b for b in every if isinstance(b, Table)), None)
    return [block for block in (figure, table) if block is not None]


def _small(figure: blocks.Figure) -> blocks.Figure:
    """The same figure, drawn for a part of the first screen."""
    heights = [p.height if p else 0.0 for p in figure.panels]
    starts = range(0, len(heights), figure.columns)
    high = sum(max(heights[k : k + figure.columns]) for k in starts)
    scale = min(1.0, HIGH / high) if high else 1.0
    panels = [p and replace(p, height=scale * p.height) for p in figure.panels]
    return replace(figure, panels=panels, width=min(figure.width, WIDE))


def _first_screen(
    answer: Sequence[Block], results: Sequence[Part], anchors: set[str]
) -> Iterator[Block]:
    findings = _telling(results, anchors)
    shown = [_small(block) if isinstance(block, blocks.Figure) else block for block in answer]
    shown[1:1] = [Bullets(findings)] if findings else []
    if shown:
        yield blocks.Row(shown)


def _telling(results: Sequence[Part], anchors: set[str]) -> list[Item]:
    """The first sentence of each topic that answers, then the second ones: at most `MOST`."""
    linked = [
        [_linked(item, part, anchors) for item in part.findings if not item.warning]
        for part in results
    ]
    leading = [items for items, part in zip(linked, results, strict=True) if part.leads]
    chosen = [item for turn in zip_longest(*leading) for item in turn if item is not None]
    more = [item for items in linked for item in items if item not in chosen]
    return (chosen[:MOST] + more)[: max(FEWEST, min(len(chosen), MOST))]


def _linked(item: Item, part: Part, anchors: set[str]) -> Item:
    """With a link to its evidence, or to its topic where it names none that is shown."""
    target = item.target if item.target in anchors else part.topic.name
    return replace(item, target=target, link=part.title)


# --- sections -------------------------------------------------------------------------------------


def _section(part: Part, answer: Sequence[Block], anchors: set[str], words: Words) -> Section:
    """Introduction, sentences and evidence; a sentence stands above the block it is about."""
    here = _anchors(part.evidence)
    moved = _anchors(answer)
    general = [item for item in part.findings if item.target not in here or item.target in moved]
    out: list[Block] = [Prose(part.intro, small=True)] if part.intro else []
    notices = [block for block in part.evidence if isinstance(block, blocks.Notice)]
    out += notices
    if general:
        out.append(Bullets([_elsewhere(item, anchors, words) for item in general]))
    for block in part.evidence:
        if block in notices or block in answer:
            continue
        inside = _anchors([block]) - moved
        about = [item for item in part.findings if item.target in inside]
        if about:
            out.append(Bullets([replace(item, target="") for item in about]))
        out += _short([block])
    return Section(part.topic.name, part.title, out)


def _elsewhere(item: Item, anchors: set[str], words: Words) -> Item:
    """With a link to the figure or table it is about, where that stands in another section."""
    if item.target not in anchors:
        return replace(item, target="")
    kind = item.target.partition("-")[0]
    return replace(item, link=item.link or words(f"page.see.{kind}"))


def _fold(part: Part) -> Fold:
    intro = [Prose(part.intro)] if part.intro else []
    items = [Bullets(part.findings)] if part.findings else []
    return Fold(part.title, [*intro, *items, *part.evidence], part.topic.name)


def _short(blocks_: Sequence[Block]) -> list[Block]:
    """Long tables behind their captions."""
    return [
        Fold(block.caption, [block]) if isinstance(block, Table) and len(block.rows) > SHORT
        else block
        for block in blocks_
    ]  # fmt: skip


def _anchors(evidence: Sequence[Block]) -> set[str]:
    return {a for block in blocks.walk(evidence) if (a := blocks.anchor(block))}


def own_text(text: object, words: Words) -> str:
    """A text of the experiment file, which may be one string or one for each language."""
    if isinstance(text, dict):
        return str(text.get(words.lang) or text.get("en") or next(iter(text.values()), ""))
    return str(text or "")
