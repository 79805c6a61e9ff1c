"""What `dualml diffs` prints for people: the table of all entries, the page of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dualml.diffs.code import code, helpers, package_of
from dualml.diffs.measure import DEVICE, SIDES
from dualml.diffs.words import cells, heading, is_silent, mark, sentence
from dualml.words import phrases

if TYPE_CHECKING:
    from dualml.backend import BackendInfo
    from dualml.diffs.compare import Found
    from dualml.diffs.entry import Entry, Lang

#: Space between two listings side by side.
GAP = 4
#: From this width on a table has the titles in a column of their own.
WIDE = 120


def table(
    entries: Sequence[Entry],
    found: Sequence[Found] | None,
    told: Mapping[str, str | None],
    lang: Lang,
) -> None:
    """All entries by topic, and how many of them are as described."""
    words, console = phrases(lang, "diffs"), Console(highlight=False)
    by_name = {one.entry.name: one for one in found or ()}
    for topic, called in phrases(lang, "diffs.topic").items():
        rows = [entry for entry in entries if entry.topic == topic]
        if not rows:
            continue
        made = Table(title=Text(f"{called} ({topic})", "bold"), title_justify="left", box=None,
                     pad_edge=False)  # fmt: skip
        wide = console.width >= WIDE
        made.add_column(words["entry"], overflow="fold", no_wrap=wide)
        if wide:
            made.add_column(words["what"], overflow="fold")
        made.add_column(words["silent"], no_wrap=True)
        if found is not None:
            made.add_column(words["effect"], overflow="fold", max_width=32 if wide else 22)
            made.add_column(words["after"], overflow="fold", max_width=12)
            made.add_column(words["state"], no_wrap=True)
        for entry in rows:
            name, title = Text(entry.name, "cyan"), spans(getattr(entry.title, lang))
            line: list[RenderableType] = [name, title] if wide else [below(name, title)]
            line.append(Text(mark(entry, words), "yellow" if is_silent(entry) else ""))
            if found is not None:
                one = by_name[entry.name]
                line += [*map(Text, cells(one, lang)), state(one, lang)]
            made.add_row(*line)
        console.print(made)
        console.print()
    summarise(entries, found, told, lang, console)


def below(name: Text, title: Text) -> Group:
    """Both in one cell."""
    return Group(name, Padding(title, (0, 0, 0, 2)))


def summarise(
    entries: Sequence[Entry],
    found: Sequence[Found] | None,
    told: Mapping[str, str | None],
    lang: Lang,
    console: Console,
) -> None:
    words = phrases(lang, "diffs")
    silent = sum(map(is_silent, entries))
    said = [words["summary"].format(n=len(entries), silent=silent)]
    if found is not None:
        wrong = [one.entry.name for one in found if one.problem]
        said.append(words["described"].format(n=len(found) - len(wrong)))
        if wrong:
            names = words["comma"].join(wrong)
            said.append(words["changed"].format(n=len(wrong), names=names))
    console.print(words["join"].join(said) + words["period"], markup=False, soft_wrap=True)
    if found is not None:
        versions = ", ".join(f"{name} {version}" for name, version in told.items())
        console.print(words["here"].format(versions=versions, device=DEVICE), markup=False,
                      soft_wrap=True)  # fmt: skip
    console.print(words["more"], markup=False, soft_wrap=True)


def explain(entry: Entry, found: Found | None, lang: Lang) -> None:
    """All that is known of one entry."""
    words, console = phrases(lang, "diffs"), Console(highlight=False)
    topic = words[f"topic.{entry.topic}"]
    console.print(Text.assemble((entry.name, "bold cyan"), f" · {topic} · ",
                                mark(entry, words, ".long")))  # fmt: skip
    console.print(Text.assemble("\n", spans(getattr(entry.title, lang), "bold"), "\n"))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    for side in SIDES:
        facts.add_row(words[side], spans(getattr(getattr(entry, side), lang)))
    facts.add_row(words["remedy"], spans(getattr(entry.remedy, lang)))
    if found is not None and found.plain is not None:
        facts.add_row(words["measured"], Text(sentence(found, lang)))
        facts.add_row("", state(found, lang, whole=True))
    facts.add_row(words["seen"], words["comma"].join(entry.seen))
    for number, source in enumerate(entry.sources):
        facts.add_row("" if number else words["sources"], Text(source))
    if entry.ranks > 1:
        facts.add_row("", spans(words["ranks"].format(n=entry.ranks)))
    console.print(facts)
    listings(entry, words, console)


def state(found: Found, lang: Lang, *, whole: bool = False) -> Text:
    """``ok``, or that it is not; with ``whole`` what is not."""
    words = phrases(lang, "diffs")
    if found.plain is None:
        return Text(words["none"])
    if found.problem is None:
        return Text(words["ok"], "green")
    more = words["colon"] + (found.said(lang) or "") if whole else ""
    return Text(words["problem" if whole else "changed.short"] + more, "red")


def listings(entry: Entry, words: Mapping[str, str], console: Console) -> None:
    """The code of both sides, next to each other where that fits."""
    codes = {side: code(entry, package_of(side)) for side in SIDES}
    for variant in ("plain", "equal"):
        parts = [(heading(side, variant, words), codes[side].get(variant)) for side in SIDES]
        if any(text is not None for _, text in parts):
            both(parts, words, console)
    parts = [(heading(side, "helpers", words), helpers(entry, package_of(side))) for side in SIDES]
    if any(text for _, text in parts):
        both([(head, text) for head, text in parts if text], words, console)


def both(
    parts: Sequence[tuple[str, str | None]], words: Mapping[str, str], console: Console
) -> None:
    shown = [
        (Text(head, "bold"), Text(words["code.unchanged"], "dim") if text is None else python(text))
        for head, text in parts
    ]
    widths = [max(line.cell_len for one in pair for line in one.split()) for pair in shown]
    if sum(widths) + GAP * (len(widths) - 1) <= console.width:
        grid = Table.grid(padding=(0, GAP))
        grid.add_row(*(Group(*pair) for pair in shown))
        console.print()
        console.print(grid)
        return
    for pair in shown:  # never broken: it is there to be copied
        console.print()
        console.print(*pair, sep="\n", soft_wrap=True)


def python(text: str) -> Text:
    """Highlighted code without the spaces that would fill its lines."""
    made = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(text)
    made.rstrip()
    return made


def spans(text: str, style: str = "") -> Text:
    """A sentence of the catalogue with its code spans in colour."""
    made = Text(style=style)
    for number, part in enumerate(text.split("`")):
        made.append(part, "cyan" if number % 2 else None)
    return made


def hint(missing: Sequence[BackendInfo], lang: Lang) -> None:
    """Why nothing was measured, and what to do."""
    words, console = phrases(lang, "diffs"), Console(highlight=False)
    for info in missing:
        text = words["hint"].format(name=info.name, install=info.install)
        console.print(Text(text, "yellow"), soft_wrap=True)
