"""Static analysis of a student's file: problems found without running it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from dualml.common.files import open_to_read
from dualml.course.encoding import decode_program
from dualml.course.exercise import ExerciseFile
from dualml.course.faults import kind_of_fault
from dualml.course.forbidden import BANNED, CALLS, COMMUNICATION, READY_MADE, ROUNDABOUT

#: Maximum bytes of a student's file.
MAX_SOURCE_BYTES = 200_000
FRAMEWORKS = {"torch": "torch", "mindspore": "mindspore"}
#: Maximum number of reported problems of each kind.
MAX_PROBLEMS_PER_KIND = 10
#: Parts of a dotted name beyond which it is none of the forbidden names.
PARTS = 12


@dataclass(frozen=True)
class Problem:
    """A problem in a file.

    Attributes:
        kind: ``absent``, ``twice``, ``empty``, ``long``, ``text`` (cannot be read as text),
            ``syntax``, ``missing``, ``signature``, ``framework``, ``not_installed``, ``banned``,
            ``ready_made``, ``communication``, ``roundabout``.
        what: names and numbers of the problem.
        line: line number from 1; 0 if there is none. ``text`` is that line.
        target: class or function that it concerns.
    """

    kind: str
    what: str = ""
    line: int = 0
    text: str = ""
    target: str = ""

    @property
    def is_fatal(self) -> bool:
        """Whether there is nothing to run."""
        return self.kind in ("absent", "twice", "empty", "long", "text", "syntax", "framework")

    @property
    def is_grave(self) -> bool:
        """Whether no requirement can count as met with this problem."""
        return self.kind != "roundabout"


def examine(path: Path, file: ExerciseFile) -> list[Problem]:
    """Return the problems of a file that are visible without running it, by line, of forbidden
    names at most `MAX_PROBLEMS_PER_KIND` a kind; only the one problem of a file that cannot be read
    or parsed.

    Raises:
        OSError: the machine is at fault (`kind_of_fault`), not the file.
    """
    try:
        content = content_of(path)
        if len(content) > MAX_SOURCE_BYTES:
            return [Problem("long", f"{path.stat().st_size:,} > {MAX_SOURCE_BYTES:,}")]
        text = decode_program(content)
    except FileNotFoundError:
        return [Problem("absent", path.name)]
    except (ValueError, SyntaxError) as error:
        return [Problem("text", str(error).replace(str(path), path.name))]
    except OSError as error:
        if kind_of_fault(error):
            raise
        return [Problem("text", error.strerror or type(error).__name__)]
    if not text.strip():
        return [Problem("empty", path.name)]
    try:
        tree = ast.parse(text, path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        what = getattr(error, "msg", None) or str(error)
        return [Problem("syntax", what, line, line_of(text, line))]
    problems = [
        *find_foreign_imports(tree, file),
        *limit_per_kind(find_forbidden(tree, file)),
        *check_signatures(tree, file),
    ]
    return [
        Problem(p.kind, p.what, p.line, line_of(text, p.line), p.target)
        for p in sorted(problems, key=lambda p: p.line)
    ]


def read_program(path: Path) -> str:
    """Read the program in a file as it is run and shown: UTF-8 text, see `decode_program`.

    Raises:
        OSError: the path is no regular file, or cannot be read.
        SyntaxError, ValueError: its text cannot be decoded.
    """
    return decode_program(content_of(path))


def read_legible(path: Path) -> str:
    """Read a file in a form that people can read, whatever is wrong with it; of a long file only
    the beginning.

    Raises:
        OSError: the path is no regular file, or cannot be read.
    """
    content = content_of(path)
    try:
        return decode_program(content)
    except (ValueError, SyntaxError):
        return content.decode("utf-8", errors="replace")


def content_of(path: Path) -> bytes:
    """Read a regular file, at most `MAX_SOURCE_BYTES` and one byte more, which shows that it is too
    long; links are not followed."""
    with open_to_read(path, follow_links=False) as stream:
        return stream.read(MAX_SOURCE_BYTES + 1)


def limit_per_kind(problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yield at most `MAX_PROBLEMS_PER_KIND` problems of each kind, the first ones."""
    seen: Counter[str] = Counter()
    for problem in problems:
        seen[problem.kind] += 1
        if seen[problem.kind] <= MAX_PROBLEMS_PER_KIND:
            yield problem


def line_of(text: str, line: int) -> str:
    """Return a line of a text by its number from 1, without white space around it, at most 200
    characters; empty if it does not exist."""
    lines = text.split("\n")
    return lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""


def find_imports(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield dotted name, name in the file, and line of each import; the name of a relative import
    begins with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                local = name.asname or name.name.partition(".")[0]
                yield name.name, local, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                whole = f"{node.module or ''}.{name.name}" if not node.level else f".{name.name}"
                yield whole, name.asname or name.name, node.lineno


def find_foreign_imports(tree: ast.AST, file: ExerciseFile) -> Iterator[Problem]:
    """Yield a problem for the first import of the other framework, or of any framework in a file
    that needs none."""
    for name, _, line in find_imports(tree):
        top = name.partition(".")[0]
        if top in FRAMEWORKS and FRAMEWORKS[top] != file.backend:
            yield Problem("framework", top, line)
            return


def find_forbidden(tree: ast.AST, file: ExerciseFile) -> Iterator[Problem]:
    """Yield uses of ready-made solutions, imports of dualml, uses of the framework's communication
    unless the exercise is about it, and ways around the restrictions."""
    aliases: dict[str, str] = {}
    ready = frozenset(READY_MADE.get(file.backend, ()))
    group = frozenset(() if file.starts_groups else COMMUNICATION.get(file.backend, ()))
    calls = frozenset(CALLS) - ({"open"} if file.uses_files else set())
    for name, local, line in find_imports(tree):
        top = name.partition(".")[0]
        aliases[local] = name if local != top else top
        if top in BANNED:
            yield Problem("banned", name, line)
        elif name in ready:
            yield Problem("ready_made", name, line)
        elif name in group:
            yield Problem("communication", name, line)
        elif top in ROUNDABOUT:
            yield Problem("roundabout", name, line)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = resolve_name(node, aliases)
            if dotted in ready:
                yield Problem("ready_made", dotted, node.lineno)
            elif dotted in group:
                yield Problem("communication", dotted, node.lineno)
            elif dotted == "sys.modules":
                yield Problem("roundabout", dotted, node.lineno)
        elif isinstance(node, ast.Name) and node.id in calls and isinstance(node.ctx, ast.Load):
            yield Problem("roundabout", node.id, node.lineno)


def resolve_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """Resolve an expression to a dotted name by the file's imports: ``nn.Adam`` →
    ``mindspore.nn.Adam``; it begins with ``?`` if the expression does not begin with a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < PARTS:
        names.append(node.attr)
        node = node.value
    first = aliases.get(node.id, node.id) if isinstance(node, ast.Name) else "?"
    return ".".join([first, *reversed(names)])


Shape = dict[str, tuple[list[str], int]]


def find_signatures(tree: ast.Module) -> Shape:
    """Return top-level class, function, method (``GD.step``) or assigned name → names of its
    parameters, and its line; classes and assigned names have no parameters."""
    found: Shape = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = parameter_names(node), node.lineno
        elif isinstance(node, ast.ClassDef):
            found[node.name] = [], node.lineno
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{node.name}.{inner.name}"] = parameter_names(inner), inner.lineno
        elif isinstance(node, ast.Assign):  # SGD = some_class
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = [], node.lineno
    return found


def parameter_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's parameters, those of ``*args`` and ``**kwargs`` last and
    with one asterisk."""
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [*names, *(f"*{a.arg}" for a in (given.vararg, given.kwarg) if a)]


@cache
def solution_signatures(solution: str) -> Shape:
    """Return the signatures in our solution, ``package:file``."""
    package, _, name = solution.partition(":")
    return find_signatures(ast.parse((files(package) / name).read_text("utf-8")))


def check_signatures(tree: ast.Module, file: ExerciseFile) -> Iterator[Problem]:
    """Yield missing classes and functions of the exercise (imported names count as there), and
    functions that lack a parameter of our solution; further parameters are allowed, and ``*args``
    or ``**kwargs`` count for any."""
    theirs, wanted = find_signatures(tree), solution_signatures(file.solution)
    known = {name for _, name, _ in find_imports(tree)}
    for target in file.targets:
        if target not in theirs and target not in known:
            yield Problem("missing", target, 0, "", target)
    for name, (names, _) in wanted.items():
        target = name.partition(".")[0]
        if target not in file.targets or name not in theirs or not names:
            continue
        got, line = theirs[name]
        lacks = [p for p in names if p not in got and not any(g.startswith("*") for g in got)]
        if lacks:
            shown = f"{name}({', '.join(got)}) → {name}({', '.join(names)})"
            yield Problem("signature", shown, line, "", target)
