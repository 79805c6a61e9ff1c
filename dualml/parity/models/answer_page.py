"""The answer of a comparison on one page: at most 24 lines of 100 columns, in a person's words.

The page says, from top to bottom: the verdict and its place; the user's lines of both sides, with
the line marked; the distance and what rounding does; the cause; the patch; what is still open. All
of it is in `ModelComparison.paragraph`, too, which leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from dualml.common.text_width import count_fitting_letters, display_width, wrap_text
from dualml.parity.models.answer_parts import AnswerParts, AnswerSource, collect_parts
from dualml.parity.models.messages import Language, format_message
from dualml.parity.models.snippets import read_snippet

#: Size of the page.
PAGE_LINES, PAGE_COLUMNS = 24, 100
#: Number of equally good explanations that are named; the others are counted.
MAX_TIES = 3
#: Labels of the page, in the order of its parts.
LABELS = ("numbers", "phases", "cause", "then", "patch", "open", "note", "more")


@dataclass(frozen=True)
class PageLine:
    """A line of the page.

    Attributes:
        role: what is on it: ``verdict``, ``label`` (its text begins with one), ``head`` (of a
            snippet), ``mark`` (the marked line), ``added``, ``removed`` (of a patch), or empty.
    """

    text: str
    role: str = ""


@dataclass(frozen=True)
class PageLimits:
    """Limits of what the page shows of each part.

    Attributes:
        gaps: whether empty lines separate the parts.
        context: source lines before and after the marked ones.
        elements: elements that differ most.
        cause_lines: lines of each cause.
        note_lines, notes: lines of each note, and number of notes.
        patch_lines: lines of the patch; None: all.
    """

    gaps: bool = True
    context: int = 1
    elements: int = 4
    cause_lines: int = 5
    note_lines: int = 3
    notes: int = 6
    patch_lines: int | None = None


#: From the fullest page to the shortest; the first that fits is shown.
STAGES = (
    PageLimits(),
    PageLimits(gaps=False),
    PageLimits(gaps=False, elements=1, note_lines=2),
    PageLimits(gaps=False, elements=1, note_lines=2, context=0),
    PageLimits(gaps=False, elements=1, note_lines=1, context=0, cause_lines=3),
    PageLimits(gaps=False, elements=1, note_lines=1, context=0, cause_lines=2, notes=3),
    PageLimits(
        gaps=False, elements=0, note_lines=1, context=0, cause_lines=2, notes=2, patch_lines=8
    ),
    PageLimits(
        gaps=False, elements=0, note_lines=1, context=0, cause_lines=1, notes=2, patch_lines=6
    ),
)


def make_page(
    source: AnswerSource,
    lang: str = "en",
    *,
    patch: Sequence[str] = (),
    width: int = PAGE_COLUMNS,
    hint: str = "",
) -> list[PageLine]:
    """Return the page about a comparison: at most `PAGE_LINES` lines of ``width`` columns. Lines
    that do not fit even at the shortest limits are cut off at the end.

    Args:
        lang: ``en`` or ``zh``.
        patch: lines about a patch: a sentence, a unified diff. They stand between the cause and
            what is still open.
        hint: where the rest can be read, put at the end.
    """
    language = cast("Language", lang)
    parts = collect_parts(source, language)
    writer = PageWriter(language, width)
    page = list[PageLine]()
    for limits in STAGES:
        page = list(writer.lay_out(parts, limits, patch, hint))
        if len(page) <= PAGE_LINES:
            break
    return page[:PAGE_LINES]


@dataclass(frozen=True)
class PageWriter:
    """Lays out the parts of a page in one language and a width in columns."""

    lang: Language
    width: int

    def lay_out(
        self, parts: AnswerParts, limits: PageLimits, patch: Sequence[str], hint: str
    ) -> Iterator[PageLine]:
        """Yield all lines of the page; ``limits`` shortens each part, not the page as a whole.

        Args:
            patch: lines about a patch: a sentence, a unified diff.
            hint: where the rest can be read.
        """
        gap = [PageLine("")] if limits.gaps else []
        for text in parts.headline:
            for line in self.break_lines(text, self.width, limits.cause_lines):
                yield PageLine(line, "verdict")
        snippets = [line for part in parts.snippets for line in self.snippet(part, limits)]
        if snippets:
            yield from [*gap, *snippets]
        measured = list(self.measurements(parts, limits))
        if measured:
            yield from [*gap, *measured]
        causes = [
            line
            for label, text in parts.causes
            for line in self.labelled(label, text, limits.cause_lines)
        ]
        if causes:
            yield from [*gap, *causes]
        if patch:
            yield from [*gap, *self.patch(patch, limits.patch_lines)]
        rest = [
            *self.notes("open", self.open_texts(parts), limits),
            *self.notes("note", parts.notes, limits),
        ]
        semicolon = format_message(self.lang, "semicolon")
        if more := semicolon.join(filter(None, [*parts.entries, hint])):
            rest += self.labelled("more", more, 2)
        if rest:
            yield from [*gap, *rest]

    def snippet(self, part: tuple[str, object], limits: PageLimits) -> Iterator[PageLine]:
        """Yield the heading of a side's operation, and its source lines with numbers, as far as
        ``limits`` allow.

        Args:
            part: the heading, and the operation as a dict.
        """
        head, operation = part
        yield from (PageLine(line, "head") for line in self.break_lines(head, self.width, 1))
        rows = read_snippet(cast("dict[str, object]", operation), limits.context)
        digits = max((len(str(row.number)) for row in rows), default=0)
        indents = [len(r.text) - len(r.text.lstrip()) for r in rows if r.number and r.text.strip()]
        indent = max(min(indents, default=0) - 2, 0)
        for row in rows:
            number = str(row.number) if row.number else ""
            text = row.text[indent:] if row.number else row.text
            line = f" {'>' if row.is_marked else ' '} {number:>{digits}}  {text}"
            yield PageLine(shorten(line, self.width), "mark" if row.is_marked else "")

    def measurements(self, parts: AnswerParts, limits: PageLimits) -> Iterator[PageLine]:
        """Yield the lines with the distance and the rounding, the elements that differ most, and
        the phases."""
        for number, text in enumerate(parts.numbers):
            yield from self.labelled("" if number else "numbers", text, 2)
        if limits.elements and parts.elements:
            room = self.width - self.indent
            fitting = [
                text for text in parts.elements[: limits.elements] if display_width(text) <= room
            ]
            text = (fitting or parts.elements[:1])[-1]
            yield from self.labelled("" if parts.numbers else "numbers", text, 1)
        if parts.phases:
            yield from self.labelled("phases", parts.phases, 2)

    def open_texts(self, parts: AnswerParts) -> list[str]:
        """Return the texts about what is still open; the first names up to `MAX_TIES` equally good
        explanations, if there are any, and counts the others."""
        if not parts.ties:
            return list(parts.open)
        say = partial(format_message, self.lang)
        shown = list(parts.ties[:MAX_TIES])
        if left := len(parts.ties) - len(shown):
            shown.append(say("page.more_ties", n=left))
        return [say("page.ties", others=say("semicolon").join(shown)), *parts.open]

    def notes(self, label: str, texts: Sequence[str], limits: PageLimits) -> Iterator[PageLine]:
        """Yield the lines of notes behind one label; where ``limits.notes`` is exceeded, the last
        line counts those left out."""
        shown = list(texts[: limits.notes])
        if left := len(texts) - len(shown):
            shown[-1:] = [format_message(self.lang, "page.more_notes", n=left + 1)]
        for number, text in enumerate(shown):
            yield from self.labelled("" if number else label, text, limits.note_lines)

    def patch(self, lines: Sequence[str], most: int | None) -> Iterator[PageLine]:
        """Yield the lines of a patch. If there are more than ``most``, unchanged lines are left
        out, and a last line counts those that still do not fit.

        Args:
            lines: a sentence, then a unified diff.
            most: None for all lines.
        """
        if most is not None and len(lines) > most:
            lines = [line for line in lines if not line.startswith((" ", "@@"))]
        shown = list(lines if most is None else lines[:most])
        if left := len(lines) - len(shown):
            shown[-1:] = [format_message(self.lang, "page.more_lines", n=left + 1)]
        yield from self.labelled("patch", shown[0], 2)
        roles = {"+": "added", "-": "removed"}
        for line in shown[1:]:
            yield PageLine(shorten(line, self.width), roles.get(line[:1], ""))

    @property
    def indent(self) -> int:
        """Columns of the widest label and the two spaces after it."""
        return 2 + max(display_width(format_message(self.lang, f"page.{n}")) for n in LABELS)

    def labelled(self, label: str, text: str, most: int) -> Iterator[PageLine]:
        """Yield the lines of a text, at most ``most``, indented behind the label, which the first
        line has.

        Args:
            label: one of `LABELS`; empty for none.
        """
        name = format_message(self.lang, f"page.{label}") if label else ""
        start = name + " " * (self.indent - display_width(name))
        for line in self.break_lines(text, self.width - self.indent, most):
            yield PageLine((start + line).rstrip(), "label" if start.strip() else "")
            start = " " * self.indent

    @staticmethod
    def break_lines(text: str, width: int, most: int) -> list[str]:
        """Return a text wrapped to ``width`` columns, in at most ``most`` lines; an ellipsis ends a
        text that was cut."""
        lines = wrap_text(" ".join(text.split()), max(width, 1))
        if len(lines) <= most:
            return lines
        return [*lines[: most - 1], shorten(f"{lines[most - 1]} …", width, force=True)]


def shorten(line: str, width: int, *, force: bool = False) -> str:
    """Return a line cut to ``width`` columns, with an ellipsis at its end if it was longer.

    Args:
        force: remove an ellipsis that the line ends with before a new one is put behind the cut.
    """
    if display_width(line) <= width:
        return line
    text = line.removesuffix(" …") if force else line
    return text[: count_fitting_letters(text, max(width - 2, 1))].rstrip() + " …"
