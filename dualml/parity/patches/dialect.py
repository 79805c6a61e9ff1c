"""Write an expression of the original in the names of the port."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dualml.parity.patches.names import (
    canonical_text,
    dotted_name,
    load_dialect,
    normalize_name,
    setting_key,
    setting_names,
)
from dualml.parity.patches.namespace import Namespace
from dualml.parity.patches.source import Edit, SourceFile

#: Nodes that need parentheses as a part of another expression.
LOOSE = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Lambda, ast.Starred)
#: Nodes whose parts need parentheses if they are loose.
TIGHT = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Attribute, ast.Subscript)
#: Methods that a port leaves out.
IDLE_METHODS = ("contiguous", "clone")


class Untranslatable(Exception):
    """Raised for an expression of the original that uses a name for which the port has none."""


@dataclass(frozen=True)
class Translator:
    """Writes expressions of the original (a PyTorch file) in the names of the port, its rewritten
    version.

    Attributes:
        original, port: both files.
        namespace: what the names in the port's file mean.
        renamed: local name of the original → that of the port.
    """

    original: SourceFile
    port: SourceFile
    namespace: Namespace
    renamed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def aliases(self) -> list[str]:
        """Names under which the port's file knows modules, those it uses most first."""
        counts = Counter(
            node.value.id
            for node in ast.walk(self.port.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        )
        return sorted(self.namespace.members, key=lambda name: -counts[name])

    @cached_property
    def is_same_framework(self) -> bool:
        """Whether the port uses PyTorch as the original does."""
        return "torch" in self.port.imported

    def spell(self, name: str) -> str:
        """Return the port's name of a function or class of PyTorch, such as ``ops.cat``, from its
        dotted name in the original.

        Raises:
            Untranslatable: it has none, or the name has no dot.
        """
        root, _, last = name.rpartition(".")
        if not last:
            raise Untranslatable(name)
        if last in self.namespace.members.get(root, ()):
            return name  # a module that both import, such as math
        for word in (last, *load_dialect()["functions"].get(last, ())):
            for alias in self.aliases:
                if word in self.namespace.members[alias]:
                    return f"{alias}.{word}"
        if last in self.port.imported or name.partition(".")[0] in self.aliases:
            return name
        kind = normalize_name(last), last[0].isupper()
        for alias in self.aliases:
            for word in self.namespace.members[alias]:
                if (normalize_name(word), word[0].isupper()) == kind:
                    return f"{alias}.{word}"
        raise Untranslatable(name)

    def translate(self, node: ast.AST, kept: ast.AST | None = None) -> str:
        """Return the text of a node of the original in the names of the port.

        Args:
            kept: a node of the port; expressions of the original that also occur in it are written
                as they stand there.

        Raises:
            Untranslatable: it uses what the port does not know.
        """
        reuse: dict[str, str] = {}
        if kept is not None:
            imported = self.port.imported
            for part in ast.walk(kept):
                if isinstance(part, ast.expr) and self.port.is_editable(part):
                    reuse.setdefault(canonical_text(part, imported), self.port.segment(part))
        return self._render(node, reuse)

    def _render(self, node: ast.AST, reuse: Mapping[str, str]) -> str:
        start, _ = self.original.span(node)
        edits = [
            Edit(edit.start - start, edit.end - start, edit.text)
            for edit in self._edits(node, reuse)
        ]
        return SourceFile(self.original.path, self.original.segment(node)).apply(edits)

    def _edits(self, node: ast.AST, reuse: Mapping[str, str]) -> Iterator[Edit]:
        """Yield the edits of the original's text that put a node into the names of the port."""
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            kept = reuse.get(canonical_text(node, self.original.imported))
            if kept is not None and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                yield self.original.replace(node, kept)
                return
        if isinstance(node, ast.Call):
            special = self._special(node, reuse)
            if special is not None:
                yield self.original.replace(node, special)
                return
            yield from self._call_edits(node, reuse)
            return
        name = dotted_name(node)
        if name:
            yield from self._name_edits(node, name)
            return
        for child in ast.iter_child_nodes(node):
            if hasattr(child, "lineno") or isinstance(child, ast.comprehension):
                yield from self._edits(child, reuse)

    def _name_edits(self, node: ast.AST, name: str) -> Iterator[Edit]:
        root = name.partition(".")[0]
        if root in self.original.imported and root not in self.aliases:
            yield self.original.replace(node, self.spell(name))
        elif root in self.renamed:
            yield self.original.replace(node, self.renamed[root] + name[len(root) :])

    def _call_edits(self, node: ast.Call, reuse: Mapping[str, str]) -> Iterator[Edit]:
        name, spelled = dotted_name(node.func), ""
        if name and name.partition(".")[0] in self.original.imported:
            spelled = self.spell(name)
            if spelled != name:
                yield self.original.replace(node.func, spelled)
        elif isinstance(node.func, ast.Attribute):
            yield from self._edits(node.func.value, reuse)
            other = load_dialect()["methods"].get(node.func.attr, node.func.attr)
            if not self.is_same_framework and other != node.func.attr:
                _, end = self.original.span(node.func)
                yield Edit(end - len(node.func.attr), end, other)
        for argument in node.args:
            yield from self._edits(argument, reuse)
        yield from self._default_edits(node, spelled)
        for keyword in node.keywords:
            yield from self._edits(keyword.value, reuse)
            if keyword.arg and (word := self.spell_setting(keyword.arg, spelled)) != keyword.arg:
                start, _ = self.original.span(keyword)
                yield Edit(start, start + len(keyword.arg), word)

    def _default_edits(self, node: ast.Call, spelled: str) -> Iterator[Edit]:
        """Yield edits that add the settings which PyTorch's call leaves out and whose default is
        another one in the port's framework.

        Args:
            spelled: the port's name of the function; empty if it has none.
        """
        defaults = load_dialect()["defaults"].get(spelled.rpartition(".")[2], {})
        known = self.namespace.signatures.get(spelled, {})
        for name, text in defaults.items() if not self.is_same_framework else ():
            given = {keyword.arg and setting_key(keyword.arg) for keyword in node.keywords}
            if setting_key(name) not in given and known.get(name, "") != ast.literal_eval(text):
                _, end = self.original.span(node)
                comma = ", " if node.args or node.keywords else ""
                yield Edit(end - 1, end - 1, f"{comma}{name}={text}")

    def spell_setting(self, name: str, function: str) -> str:
        """Return the port's name of a keyword argument of a function of the port; the given name if
        nothing is known."""
        known = self.namespace.signatures.get(function)
        names = setting_names(setting_key(name))
        if known:
            return next((word for word in (name, *names) if word in known), name)
        used = Counter(
            keyword.arg
            for node in ast.walk(self.port.tree)
            if isinstance(node, ast.Call)
            for keyword in node.keywords
            if keyword.arg in names
        )
        return used.most_common(1)[0][0] or name if used else name

    def _special(self, node: ast.Call, reuse: Mapping[str, str]) -> str | None:
        """Return the text of a method that the port writes in another form; None for others."""
        if not isinstance(node.func, ast.Attribute) or self.is_same_framework:
            return None
        name = dotted_name(node.func)
        if name and name.partition(".")[0] in self.original.imported:
            return None
        inner, method = self._render(node.func.value, reuse), node.func.attr
        if method == "detach":
            return f"{self.spell('detach')}({inner})"
        if method in IDLE_METHODS:
            return inner
        if method == "size":
            axes = [self._render(one, reuse) for one in node.args]
            return f"{inner}.shape" + (f"[{axes[0]}]" if axes else "")
        return None


def parenthesize(text: str, node: ast.AST, parent: ast.AST | None) -> str:
    """Return the text of a node, in parentheses where it becomes a part of ``parent`` and needs
    them."""
    return f"({text})" if isinstance(node, LOOSE) and isinstance(parent, TIGHT) else text
