"""A user's source file: its syntax tree, edits at positions of the tree, and the unified diff."""

from __future__ import annotations

import ast
import difflib
import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from dualml.common.files import MAX_TEXT_BYTES
from dualml.parity.patches.names import imported_names

#: Line ends, as Python's tokenizer sees them.
LINE_END = re.compile(r"\r\n|\r|\n")
#: What the first lines of a file that a program wrote say.
GENERATED = re.compile(r"@generated|(auto[- ]?|automatically )generated|do not edit", re.I)
#: Number of lines in which a generated file says so.
HEAD_LINES = 5


class UnreadableSource(Exception):
    """A file that cannot be patched; the message is a key: ``unreadable``, ``generated`` or
    ``unparsable``."""


@dataclass(frozen=True, order=True)
class Edit:
    """A replacement of the characters from ``start`` to ``end`` of a text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class SourceFile:
    """The text of a Python file.

    Attributes:
        path: the file.
        text: its text, with its own line ends.
        encoding: of its bytes.
    """

    path: Path
    text: str
    encoding: str = "utf-8"

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the text."""
        return ast.parse(self.text)

    @cached_property
    def imported(self) -> frozenset[str]:
        """The names under which the file knows modules, and the names that it imports from them."""
        return imported_names(self.tree)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Each node of the tree → the node that directly contains it; the module has none."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def lines(self) -> list[str]:
        """The lines, each with its end."""
        ends = [0, *(found.end() for found in LINE_END.finditer(self.text)), len(self.text)]
        return [self.text[start:end] for start, end in pairwise(ends)]

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of the first character of each line."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    def offset(self, line: int, column: int) -> int:
        """Return the character offset of a line, from 1, and a column, in bytes of UTF-8."""
        text = self.lines[line - 1]
        return self.line_starts[line - 1] + len(text.encode()[:column].decode(errors="replace"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the character offsets of a node's first character and behind its last; raise
        `ValueError` if the node has no position."""
        if isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.arg):
            end_line, end_column = node.end_lineno, node.end_col_offset
            if end_line is not None and end_column is not None:
                return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)
        raise ValueError(f"{type(node).__name__} has no position")

    def segment(self, node: ast.AST) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def replace(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that puts a text in place of a node."""
        return Edit(*self.span(node), text)

    def is_editable(self, node: ast.AST) -> bool:
        """Return whether a node can be edited: an expression, statement or keyword argument outside
        of f-strings, whose parts have no position that all versions of Python agree on."""
        above: ast.AST | None = node
        while above is not None:
            if isinstance(above, ast.JoinedStr):
                return False
            above = self.parents.get(above)
        return isinstance(node, ast.expr | ast.stmt | ast.keyword)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement that contains a node, or the node itself if it is one;
        None outside of all."""
        above: ast.AST | None = node
        while above is not None and not isinstance(above, ast.stmt):
            above = self.parents.get(above)
        return above

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the functions and classes around a node, without the node itself, the innermost
        first."""
        above = self.parents.get(node)
        while above is not None:
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield above
            above = self.parents.get(above)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """All statements, from top to bottom."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]
        return sorted(found, key=lambda one: (one.lineno, one.col_offset))

    def statement_at(self, line: int) -> ast.stmt | None:
        """Return the statement of fewest lines that covers a line, counted from 1, the first of
        several; None if there is none."""
        covering = [
            one for one in self.statements if one.lineno <= line <= (one.end_lineno or one.lineno)
        ]
        return min(covering, key=extra_lines, default=None)

    def apply(self, edits: Iterable[Edit]) -> str:
        """Return the text with edits applied, in any order; an edit that is given twice is applied
        once.

        Raises:
            ValueError: two edits overlap.
        """
        out, at = [], 0
        for edit in sorted(set(edits)):
            if edit.start < at:
                raise ValueError("edits overlap")
            out += [self.text[at : edit.start], edit.text]
            at = edit.end
        return "".join([*out, self.text[at:]])

    def with_text(self, text: str) -> SourceFile:
        """Return a copy of this `SourceFile` with another text; nothing is written."""
        return SourceFile(self.path, text, self.encoding)


def extra_lines(node: ast.stmt) -> int:
    """Return the number of lines of a statement after its first one: 0 for a statement on one
    line."""
    return (node.end_lineno or node.lineno) - node.lineno


def read_source(path: Path) -> SourceFile:
    """Read a Python file.

    Raises:
        UnreadableSource: it cannot be read (``unreadable``), was written by a program
            (``generated``), or is no valid Python (``unparsable``).
    """
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise UnreadableSource("unreadable")
        data = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        source = SourceFile(path, data.decode(encoding), encoding)
    except SyntaxError:
        raise UnreadableSource("unparsable") from None
    except (OSError, ValueError):
        raise UnreadableSource("unreadable") from None
    head = "".join(line for line in source.lines[:HEAD_LINES] if line.lstrip().startswith("#"))
    if GENERATED.search(head):
        raise UnreadableSource("generated")
    try:
        ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnreadableSource("unparsable") from None
    return source


def common_folder(paths: Iterable[Path]) -> Path:
    """Return the folder from which a patch of these files is applied: the working folder if all are
    below it, else the deepest one that contains them all."""
    folders = [path.parent for path in paths]
    here = Path.cwd()
    if all(here == folder or here in folder.parents for folder in folders):
        return here
    return Path(os.path.commonpath(folders))


def unified_diff(path: Path, before: str, after: str, folder: Path) -> str:
    """Return the unified diff of a file's text, for ``patch -p1`` and ``git apply`` in a folder
    above the file; empty if both texts are equal."""
    shown = path.relative_to(folder).as_posix()
    old, new = (f"{letter}/{shown}" for letter in "ab")
    rows, others = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    pieces = difflib.unified_diff(rows, others, old, new)
    out = []
    for piece in pieces:
        ended = piece.endswith("\n")
        out.append(piece if ended else f"{piece}\n\\ No newline at end of file\n")
    return "".join(out)


def encode_files(files: Mapping[Path, SourceFile]) -> dict[Path, bytes]:
    """Return path → the file's text as bytes, in its own encoding."""
    return {path: one.text.encode(one.encoding) for path, one in files.items()}
