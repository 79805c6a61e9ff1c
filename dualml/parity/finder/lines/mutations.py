"""Changes of a rule's lines: another operand, another order, before instead of after."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

from dualml.algorithms.optim import OptimizerSpec
from dualml.parity.finder.lines.expressions import (
    Names,
    changed_expressions,
    parse,
    reads_array,
    replace_operands,
)

ARRAYS = ("p", "g")
SCALARS = ("lr", "step")


class Mutant(NamedTuple):
    """A changed program, and how unusual its change is: 1 for another operand, 3 for an inserted
    factor."""

    tree: ast.FunctionDef
    cost: int


def mutants(tree: ast.FunctionDef, rule: OptimizerSpec, scheduled: bool) -> Iterator[Mutant]:
    """Yield every changed program, some of which compute the same.

    Args:
        tree: the program of the rule, see `read_program`.
        scheduled: whether the learning rate changes; if not, the rule's field ``lr`` is not tried,
            because it equals the learning rate of every update.
    """
    for mutant in changed_programs(keep_earlier_values(tree), rule, scheduled):
        yield mutant._replace(tree=without_unread_copies(mutant.tree))


def changed_programs(
    tree: ast.FunctionDef, rule: OptimizerSpec, scheduled: bool
) -> Iterator[Mutant]:
    """Yield each changed program with its cost; ``tree`` and the results hold the copies that
    `keep_earlier_values` adds."""
    numbers = [
        f.name
        for f in fields(rule)
        if f.type == "float" and getattr(rule, f.name) and (scheduled or f.name != "lr")
    ]
    known = Names(
        (*ARRAYS, *(f"s[{key!r}]" for key in rule.state_keys)),
        (*SCALARS, *(f"self.{name}" for name in numbers)),
    )
    arrays = set(known.arrays)
    for at, line in enumerate(tree.body):
        value = line.value  # type: ignore[attr-defined]
        names = Names(tuple(n for n in known.arrays if n in arrays), known.scalars)
        changes = () if name_of_copy(line) else changed_expressions(value, names)
        for new, cost in changes:
            yield Mutant(with_value(tree, at, new), cost)
        for name, kind in assigned_names(line):
            is_array = reads_array(value, arrays)
            if is_array and kind == "variable":
                arrays.add(name)
            if name not in (*known.arrays, *known.scalars):
                known = (
                    known._replace(arrays=(*known.arrays, name))
                    if is_array
                    else known._replace(scalars=(*known.scalars, name))
                )
    yield from moved_lines(tree)
    yield from extreme_states(tree, rule)
    yield from repeated_averages(tree, rule)


def keep_earlier_values(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return the program with a copy ``X_before`` of every name that it assigns anew."""
    tree, seen, body = copy.deepcopy(tree), {"p", "g"}, list[ast.stmt]()
    for line in tree.body:
        for name, kind in assigned_names(line):
            if name in seen and kind == "variable":
                body.append(ast.parse(f"{name}_before = {name}").body[0])
            seen.add(name)
        body.append(line)
    tree.body = body
    return tree


def without_unread_copies(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return the program without the copies of earlier values that no line reads."""
    copies = {line: name for line in tree.body if (name := name_of_copy(line))}
    if not copies:
        return tree
    read = set[str]().union(*(read_names(line) for line in tree.body))
    return with_body(tree, [one for one in tree.body if copies.get(one, "") in {"", *read}])


def name_of_copy(line: ast.stmt) -> str:
    """Return the name of a copy ``X_before`` that a line makes; else empty."""
    target = line.targets[0] if isinstance(line, ast.Assign) else None
    is_copy = isinstance(target, ast.Name) and target.id.endswith("_before")
    return target.id if is_copy else ""  # type: ignore[union-attr]


def read_names(line: ast.stmt) -> set[str]:
    """Return the names that a line reads; kept with the line, which does not change."""
    if not hasattr(line, "read"):
        value = line.value  # type: ignore[attr-defined]
        line.read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}  # type: ignore[attr-defined]
    return line.read  # type: ignore[attr-defined, no-any-return]


def assigned_names(line: ast.stmt) -> list[tuple[str, str]]:
    """Return the names that a line assigns, each ``variable`` or ``item`` (of a mapping)."""
    if not isinstance(line, ast.Assign):
        return []
    target = line.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [(ast.unparse(t), "variable" if isinstance(t, ast.Name) else "item") for t in parts]


def with_value(tree: ast.FunctionDef, at: int, value: ast.expr) -> ast.FunctionDef:
    """Return a copy of the program with another right-hand side in line ``at``, counted from 0."""
    line = tree.body[at]
    new = ast.Assign(line.targets, value) if isinstance(line, ast.Assign) else ast.Return(value)
    placed = ast.copy_location(new, line)  # its source cannot be told without
    return with_body(tree, [*tree.body[:at], placed, *tree.body[at + 1 :]])


# --- whole lines ----------------------------------------------------------------------------------


def moved_lines(tree: ast.FunctionDef) -> Iterator[Mutant]:
    """Yield programs in which a line ``X = f(X)`` acts later: further down, on another variable, or
    on the result."""
    for at, line in enumerate(tree.body):
        names = assigned_names(line)
        if len(names) != 1 or names[0][1] != "variable":
            continue
        name, value = names[0][0], line.value  # type: ignore[attr-defined]
        if not any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)):
            continue
        rest = [*tree.body[:at], *tree.body[at + 1 :]]
        for to in range(at + 1, len(rest)):  # further down
            yield Mutant(with_body(tree, [*rest[:to], line, *rest[to:]]), 1)
        for to in range(at, len(rest) - 1):  # on another variable, once it is there
            for other, kind in assigned_names(rest[to]):
                if kind == "variable" and other != name and not other.endswith("_before"):
                    made = ast.parse(
                        f"{other} = {ast.unparse(replace_operands(value, {name: parse(other)}))}"
                    )
                    yield Mutant(with_body(tree, [*rest[: to + 1], *made.body, *rest[to + 1 :]]), 1)
        result = rest[-1].value  # type: ignore[attr-defined]
        if isinstance(result, ast.Tuple):
            new = ast.Tuple(
                [replace_operands(value, {name: result.elts[0]}), *result.elts[1:]], ast.Load()
            )
            yield Mutant(with_body(tree, [*rest[:-1], ast.Return(new)]), 1)


def with_body(tree: ast.FunctionDef, body: list[ast.stmt]) -> ast.FunctionDef:
    """Return a copy of the program with other lines."""
    new = copy.copy(tree)
    new.body = body
    return new


def extreme_states(tree: ast.FunctionDef, rule: OptimizerSpec) -> Iterator[Mutant]:
    """Yield programs that keep the larger or smaller one of an old and a new state."""
    for at, line in enumerate(tree.body[:-1]):
        value = line.value  # type: ignore[attr-defined]
        for key in rule.state_keys:
            old = f"s[{key!r}]"
            if old in ast.unparse(value) and len(assigned_names(line)) == 1:
                for function in ("maximum", "minimum"):
                    new = parse(f"np.{function}({old}, {ast.unparse(value)})")
                    yield Mutant(with_value(tree, at, new), 2)


def repeated_averages(tree: ast.FunctionDef, rule: OptimizerSpec) -> Iterator[Mutant]:
    """Yield programs in which a line reads a new state as if it were the old one of its formula
    again, as the look-ahead of Nesterov does."""
    states = [parse(f"s[{key!r}]") for key in rule.state_keys]
    for at, line in enumerate(tree.body):
        names = assigned_names(line)
        for old in states if len(names) == 1 and names[0][1] == "variable" else ():
            name, value = names[0][0], line.value  # type: ignore[attr-defined]
            again = replace_operands(value, {ast.unparse(old): parse(name)})
            if ast.unparse(again) == ast.unparse(value):
                continue
            for to in range(at + 1, len(tree.body)):
                used = tree.body[to].value  # type: ignore[attr-defined]
                new = replace_operands(used, {name: again})
                if not isinstance(used, ast.Tuple) and ast.unparse(new) != ast.unparse(used):
                    yield Mutant(with_value(tree, to, new), 2)
