"""The update of a rule as straight-line source, which can be changed and compiled again."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dualml.algorithms.optim import OptimizerSpec
from dualml.parity.hypothesis import Patch

#: (rule, p, g, state, step, lr) → (p, state): the signature of `OptimizerSpec.update_param`.
UpdateParam = Callable[..., tuple[Any, dict[str, Any]]]


def read_program(rule: OptimizerSpec) -> ast.FunctionDef | None:
    """Return the source of a rule's `update_param` without the branches that its settings exclude;
    None if there is no source, or it is more than assignments and a final ``return``."""
    try:
        source = textwrap.dedent(inspect.getsource(type(rule).update_param))
        tree = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(tree, ast.FunctionDef) or len(tree.args.args) != 6:
        return None
    body = flatten(SettledBranches(rule).settle(tree.body))
    straight = all(isinstance(one, ast.Assign) for one in body[:-1])
    if not body or not straight or not isinstance(body[-1], ast.Return):
        return None
    tree.body, tree.returns, tree.decorator_list = body, None, []
    for argument in tree.args.args:
        argument.annotation = None
    return ast.parse(ast.unparse(tree)).body[0]  # type: ignore[return-value]


class SettledBranches(ast.NodeTransformer):
    """Replaces conditions that depend on nothing but the rule's fields by the branch they take."""

    def __init__(self, rule: OptimizerSpec) -> None:
        self.rule = rule

    def settle(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements that can be reached, up to the first ``return``."""
        reached: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.If) and (taken := self.value(statement.test)) is not None:
                reached += self.settle(statement.body if taken else statement.orelse)
            elif not (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ):
                reached.append(self.visit(statement))
            if reached and isinstance(reached[-1], ast.Return):
                break
        return reached

    def value(self, test: ast.expr) -> bool | None:
        """Return the value of a condition, or None if it depends on more than the fields."""
        if any(isinstance(n, ast.Name) and n.id != "self" for n in ast.walk(test)):
            return None
        code = compile(ast.Expression(test), "<condition>", "eval")
        return bool(eval(code, {"__builtins__": {}}, {"self": self.rule}))

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Return the branch that is taken, or the expression where that depends on the update."""
        self.generic_visit(node)
        taken = self.value(node.test)
        return node if taken is None else node.body if taken else node.orelse


def flatten(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements with one target and one value each."""
    flat: list[ast.stmt] = []
    for statement in body:
        if not isinstance(statement, ast.Assign):
            flat.append(statement)
            continue
        *others, first = statement.targets[::-1]
        pair = isinstance(first, ast.Tuple) and isinstance(statement.value, ast.Tuple)
        if pair and not others:
            flat += [
                ast.Assign([target], value)
                for target, value in zip(first.elts, statement.value.elts, strict=True)  # type: ignore[attr-defined]
            ]
        else:
            flat.append(ast.Assign([first], statement.value))
            flat += [ast.Assign([other], read_expression(first)) for other in others]
    return [
        ast.parse(ast.unparse(ast.fix_missing_locations(one))).body[0]
        if not isinstance(one, ast.Return)
        else one
        for one in flat
    ]


def read_expression(target: ast.expr) -> ast.expr:
    """Return the expression that reads what an assignment's target holds."""
    return ast.parse(ast.unparse(target), mode="eval").body


def compile_program(tree: ast.FunctionDef, rule: OptimizerSpec) -> UpdateParam:
    """Return the function of a program, in the namespace of the rule's module: (rule, p, g, state,
    step, lr) → (p, state). Each line is compiled once: a search changes one line at a time and
    tries thousands."""
    codes = [code_of(line) for line in tree.body]
    names = {"np": np, **type(rule).update_param.__globals__}
    own, p, g, s, step, lr = (argument.arg for argument in tree.args.args)

    def update(rule: Any, *given: Any) -> Any:
        place = dict(zip((own, p, g, s, step, lr), (rule, *given), strict=True))
        for code in codes:
            exec(code, names, place)
        return place["<result>"]

    return update


def code_of(line: ast.stmt) -> Any:
    """Return the compiled line, which is kept with it; a ``return`` assigns its result."""
    if not hasattr(line, "code"):
        made = line
        if isinstance(line, ast.Return):
            assert line.value is not None
            made = ast.Assign([ast.Name("<result>", ast.Store())], line.value)
        module = ast.Module([ast.fix_missing_locations(ast.copy_location(made, ANY_STATEMENT))], [])
        line.code = compile(module, "<changed rule>", "exec")  # type: ignore[attr-defined]
    return line.code  # type: ignore[attr-defined]


#: Gives new lines a place in the source, which compiling asks for.
ANY_STATEMENT = ast.parse("0").body[0]


def changed_lines(right: ast.FunctionDef, changed: ast.FunctionDef) -> tuple[str, str]:
    """Return the lines of a program that were changed, and what stands there instead: the smallest
    block that holds all changes, lines separated by ``\\n``. Two empty texts if nothing was
    changed."""
    before, after = ([ast.unparse(s) for s in tree.body] for tree in (right, changed))
    ops = [
        o
        for o in difflib.SequenceMatcher(None, before, after, False).get_opcodes()
        if o[0] != "equal"
    ]
    if not ops:
        return "", ""
    (_, a, _, c, _), (_, _, b, _, d) = ops[0], ops[-1]
    if a == b:  # only inserted: the line that follows tells where
        b, d = b + 1, d + 1
    return "\n".join(before[a:b]), "\n".join(after[c:d])


def differing_lines(line: str, instead: str) -> tuple[str, str]:
    """Return only what differs between two blocks of lines, separated by ``; ``, or ``…`` for
    nothing; of a ``return`` each of its results is a line of its own."""
    old, new = (
        [part for one in block.split("\n") for part in parts_of(one)] for block in (line, instead)
    )
    return (
        "; ".join(one for one in old if one not in new) or "…",
        "; ".join(one for one in new if one not in old) or "…",
    )


def statements(block: str) -> list[ast.stmt]:
    """Return the statements of a block of lines, which may hold a ``return``."""
    made = ast.parse(f"def f():\n{textwrap.indent(block, ' ')}").body[0]
    assert isinstance(made, ast.FunctionDef)
    return made.body


def parts_of(line: str) -> list[str]:
    """Return a line, or the results of a ``return``: the new parameter and each new state."""
    statement = statements(line)[0]
    if not isinstance(statement, ast.Return) or not isinstance(statement.value, ast.Tuple):
        return [line.replace("{", "dict(").replace("}", ")")]
    new, state = statement.value.elts
    told = [f"return {ast.unparse(new)}"]
    if isinstance(state, ast.Dict):
        pairs = zip(state.keys, state.values, strict=True)
        return told + [f"{ast.literal_eval(k)}: {ast.unparse(v)}" for k, v in pairs if k]
    return [*told, ast.unparse(state)]


def make_patch(rule: OptimizerSpec, changed: ast.FunctionDef) -> Patch:
    """Return the edit of a rule's source that makes its `update_param` the changed program: of
    those lines where they are found as they are, else of the whole function."""
    function = type(rule).update_param
    target, right = function.__qualname__.partition(".")[0], read_program(rule)
    file, source = inspect.getsourcefile(function), inspect.getsource(function)
    assert file is not None
    assert right is not None
    old, new = (block.split("\n") for block in changed_lines(right, changed))
    indent = source[: len(source) - len(source.lstrip())]
    edits = tuple(pair for pair in zip(old, new, strict=False) if pair[0] != pair[1])
    lines = list(map(ast.unparse, changed.body))
    if "np." in "".join(lines) and "np" not in function.__globals__:
        lines.insert(0, "import numpy as np")
    as_they_are = all(source.count(f"{line}\n") == 1 for line, _ in edits)
    if len(old) != len(new) or len(lines) > len(changed.body) or not as_they_are:
        body = textwrap.indent("\n".join(lines), indent * 2)
        names = ", ".join(one.arg for one in changed.args.args)
        edits = ((source, f"{indent}def {changed.name}({names}):\n{body}\n"),)
    return Patch(Path(file).name, target, edits)


def replace_lines(rule: OptimizerSpec, line: str, instead: str) -> UpdateParam:
    """Return the rule's update with some of its lines replaced, as `changed_lines` gives them.

    Raises:
        LookupError: the rule has no such lines.
    """
    tree = read_program(rule)
    lines = [] if tree is None else [ast.unparse(s) for s in tree.body]
    old = line.split("\n")
    for at in range(len(lines) - len(old) + 1):
        if tree is not None and lines[at : at + len(old)] == old:
            tree.body[at : at + len(old)] = statements(instead)
            return compile_program(tree, rule)
    raise LookupError(f"the rule has no lines {line!r}")
