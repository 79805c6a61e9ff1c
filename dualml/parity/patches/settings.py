"""Rewritings of settings: arguments of constructors and calls, numbers, parameters' defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from dualml.parity.patches.differences import insert_argument, remove_argument
from dualml.parity.patches.names import dotted_name, function_key, normalize_name, setting_names
from dualml.parity.patches.rewriting import (
    FILE,
    FUNCTIONS,
    NAMED_SETTING,
    NEARBY,
    PER_LINE,
    STATEMENT,
    PatchSite,
    Rewriting,
)
from dualml.parity.patches.source import Edit
from dualml.parity.patches.values import (
    default_of,
    desired_texts,
    has_value,
    is_number,
    is_same_setting,
    read_literal,
    written_forms,
)

#: Number of first letters that related names of functions share.
RELATED_LETTERS = 4
#: Numbers that occur everywhere: only named settings are changed to or from them.
COMMON = (0, 1, -1, 2)


def setting_rewritings(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings of the port that give the settings which the cause names their values on the
    original's side: where they are named, where they are left out, and where the number stands."""
    change = site.change
    names = str(change["argument"]).split(" and ")
    olds = change["old"] if change["action"] == "settings" else [change["old"]]
    values = change["value"] if change["action"] == "settings" else [change["value"]]
    if change["action"] == "settings":
        values = [row[1] if isinstance(row, list | tuple) else row for row in values]
    for name, old, value in zip(names, olds, values, strict=False):
        yield from restore_setting(site, name, old, value)
    if change["action"] == "pad" or "padding" in names:
        yield from padding_rewritings(
            site, olds[names.index("padding")] if "padding" in names else change["old"]
        )


def restore_setting(site: PatchSite, name: str, old: Any, value: Any) -> Iterator[Rewriting]:
    """Yield rewritings that give one setting the original's value ``old`` instead of the port's
    ``value``."""
    related: list[tuple[ast.Call, float]] = []
    for call, cost in calls_by_cost(site):
        named = list(named_argument(site, call, name, old, value))
        for edit in named:
            yield site.rewrite(cost, edit)
        if named:
            related.append((call, cost))
        else:
            for edit in add_setting(site, call, name, old, value):
                yield site.rewrite(cost + 0.4, edit)
    yield from restore_everywhere(site, related, name, old, value)
    yield from number_rewritings(site, name, old, value)


def calls_by_cost(site: PatchSite) -> Iterator[tuple[ast.Call, float]]:
    """Yield (call, cost) of the calls that may have the setting of the cause, a smaller cost being
    likelier: all calls at the cause, then related ones in the whole file."""
    operation = function_key(str(site.change["operation"]))
    seen = set()
    for number, statement in enumerate(site.statements):
        for node in site.expressions(statement):
            if isinstance(node, ast.Call) and node not in seen:
                seen.add(node)
                apart = 0.0 if is_related(node, operation) else 0.3
                yield node, NAMED_SETTING + 0.1 * number + apart
    calls = [node for node in ast.walk(site.port.tree) if isinstance(node, ast.Call)]
    for call in calls:
        if call not in seen and site.port.is_editable(call) and is_related(call, operation):
            yield call, NEARBY + PER_LINE * site.distance(call)


def is_related(call: ast.Call, operation: str) -> bool:
    """Return whether a call may be of an operation: their names begin alike, or one contains the
    other.

    Args:
        operation: name of the operation, see `function_key`.
    """
    name = dotted_name(call.func) or getattr(call.func, "attr", "")
    key, word = function_key(name), normalize_name(operation)
    short = min(len(key), len(word), RELATED_LETTERS)
    return short > 1 and (key[:short] == word[:short] or key in word or word in key)


def named_argument(
    site: PatchSite, call: ast.Call, name: str, old: Any, value: Any
) -> Iterator[Edit]:
    """Yield edits that change the argument with which a call gives this setting, by name or by
    position, the value ``value``, so that it gives the original's value ``old``."""
    port, forms = site.port, written_forms(name, value)
    rows = [(one.arg, one.value) for one in call.keywords if one.arg]
    parameters = list(site.namespace.signatures.get(dotted_name(call.func), ()))
    rows += list(zip(parameters, call.args, strict=False))
    for word, node in rows:
        written = read_literal(node)
        if not is_same_setting(word, name) or not port.is_editable(node):
            continue
        if written is ... or not any(has_value(written, form) for form in forms):
            continue
        for text in desired_texts(name, old, value, written):
            yield port.replace(node, text)


def add_setting(site: PatchSite, call: ast.Call, name: str, old: Any, value: Any) -> Iterator[Edit]:
    """Yield edits that add a setting with the original's value ``old`` to a call that leaves it at
    its default ``value``."""
    parameters = site.namespace.signatures.get(dotted_name(call.func))
    if any(one.arg and is_same_setting(one.arg, name) for one in call.keywords):
        return
    words = [word for word in parameters or () if is_same_setting(word, name)]
    if parameters is None and is_related(call, str(site.change["operation"])):
        words = list(setting_names(name))[:2]
    positions = list(parameters or ())
    for word in words[:2]:
        if word in positions and positions.index(word) < len(call.args):
            continue
        default = default_of(parameters, word)
        for text in list(desired_texts(name, old, value, default))[:2]:
            yield insert_argument(site.port.text, site.port.span(call), f"{word}={text}")


def restore_everywhere(
    site: PatchSite, related: Sequence[tuple[ast.Call, float]], name: str, old: Any, value: Any
) -> Iterator[Rewriting]:
    """Yield one rewriting for each function that is called several times with the setting, which
    changes all these calls: a wrong setting is often repeated.

    Args:
        related: (call, cost) of the calls with the setting.
    """
    groups: dict[str, list[ast.Call]] = {}
    for call, _ in related:
        groups.setdefault(dotted_name(call.func), []).append(call)
    for calls in groups.values():
        if len(calls) > 1:
            edits = [next(named_argument(site, call, name, old, value)) for call in calls]
            yield site.rewrite(NAMED_SETTING + 0.7, *edits)


def number_rewritings(site: PatchSite, name: str, old: Any, value: Any) -> Iterator[Rewriting]:
    """Yield rewritings of literals that have the setting's value, anywhere in the port's file;
    those at the cause and near it have the smallest costs (the likeliest ones)."""
    forms = written_forms(name, value)
    common = is_number(value) and value in COMMON
    for node in ast.walk(site.port.tree):
        if not isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.UnaryOp):
            continue
        if not site.port.is_editable(node) or (written := read_literal(node)) is ...:
            continue
        if not any(has_value(written, form) for form in forms):
            continue
        gap = site.distance(node)
        near = any(node in ast.walk(one) for one in site.statements)
        cost = (
            STATEMENT - 0.5 if near else (FILE if common else FUNCTIONS) + PER_LINE * min(gap, 40)
        )
        if is_default_of(site, node, name):
            cost = STATEMENT
        for text in list(desired_texts(name, old, value, written))[:1]:
            if text != site.port.segment(node):
                yield site.rewrite(cost, site.port.replace(node, text))


def is_default_of(site: PatchSite, node: ast.AST, name: str) -> bool:
    """Return whether a literal is given to a name that means the setting ``name``: as the default
    of a parameter, as a keyword argument, or by an assignment."""
    parent = site.port.parents.get(node)
    if isinstance(parent, ast.arguments):
        rows = [*parent.posonlyargs, *parent.args]
        pairs = [*zip(rows[len(rows) - len(parent.defaults) :], parent.defaults, strict=True)]
        pairs += [(x, y) for x, y in zip(parent.kwonlyargs, parent.kw_defaults, strict=True) if y]
        return any(is_same_setting(arg.arg, name) and value is node for arg, value in pairs)
    if isinstance(parent, ast.keyword) and parent.arg:
        return is_same_setting(parent.arg, name)
    if isinstance(parent, ast.Assign):
        word = dotted_name(parent.targets[0]).rpartition(".")[2]
        return is_same_setting(word.lower(), name)
    return False


def padding_rewritings(site: PatchSite, old: Any) -> Iterator[Rewriting]:
    """Yield rewritings of MindSpore's ``pad_mode`` at the calls that have it: explicit padding with
    the original's ``old``, or ``valid`` if that is 0."""
    first = old[0] if isinstance(old, list | tuple) and old else old
    for call, cost in calls_by_cost(site):
        words = {one.arg: one for one in call.keywords if one.arg}
        parameters = site.namespace.signatures.get(dotted_name(call.func), {})
        if "pad_mode" not in words and "pad_mode" not in parameters:
            continue
        span, port = site.port.span(call), site.port
        text = f'pad_mode="pad", padding={first}' if first else 'pad_mode="valid"'
        if "pad_mode" not in words:
            yield site.rewrite(cost, insert_argument(port.text, span, text))
            continue
        edits = [port.replace(words["pad_mode"], text)]
        if "padding" in words:
            if not first:
                edits.append(remove_argument(port.text, port.span(words["padding"])))
            else:
                edits = [
                    port.replace(words["pad_mode"], 'pad_mode="pad"'),
                    port.replace(words["padding"].value, str(first)),
                ]
        yield site.rewrite(cost, *edits)
