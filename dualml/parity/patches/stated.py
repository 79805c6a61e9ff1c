"""Rewritings of settings that the two sources state differently under one name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dualml.parity.patches.names import dotted_name
from dualml.parity.patches.rewriting import NAMED_SETTING, PatchSite, Rewriting
from dualml.parity.patches.values import format_literal, is_same_setting, read_literal


def restore_stated(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings of the port's values of a setting (in arguments, defaults, …) that give it a
    value which it has in the original. For a cause in the optimizer only the name of the setting is
    known."""
    if site.original is None:
        return
    name = str(site.change["argument"]).partition(":")[2] or str(site.change["argument"])
    words = {"lr_factor": "lr", "decay": "weight_decay", "first_correction": "beta1"}
    name = words.get(name, name)
    known = {
        repr(value): value
        for word, node in named_values(site.original.tree)
        if is_same_setting(word, name) and (value := read_literal(node)) is not ...
    }
    for word, node in named_values(site.port.tree):
        if not is_same_setting(word, name) or not site.port.is_editable(node):
            continue
        written = read_literal(node)
        for value in known.values():
            if written is not ... and written != value:
                text = format_literal(value, written)
                cost = NAMED_SETTING + 0.2 + 0.01 * min(site.distance(node), 50)
                yield site.rewrite(cost, site.port.replace(node, text))


def named_values(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) for all values with a name in a file: keyword arguments, defaults of
    parameters, items of dictionaries, assigned names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value
        elif isinstance(node, ast.arguments):
            rows = [*node.posonlyargs, *node.args]
            last = rows[len(rows) - len(node.defaults) :]
            yield from ((arg.arg, value) for arg, value in zip(last, node.defaults, strict=True))
            pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from ((arg.arg, value) for arg, value in pairs if value is not None)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        elif isinstance(node, ast.Assign):
            word = dotted_name(node.targets[0]).rpartition(".")[2]
            if word:
                yield word, node.value
