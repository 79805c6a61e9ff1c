"""No class merely forwards: whoever needs what a wrapper does not change asks the wrapped object.

A method forwards if it does nothing but call the method of the same name, with its own arguments,
of an object that it holds, or return that object's attribute of the same name. Each such method is
named in `FORWARDS` with the reason why it stays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import parse_source

ROOT = Path(__file__).parents[2]
CAPABILITY = "the core asks a whole training, which takes its part's answer"
HOOK = "the default of a hook: executors of shards and of a server override it"
RESOURCE = "gives away a part of the one resource that the class owns, and hides the rest"
VIEW = "a row of a page or a table, whose columns name their fields"

#: Class.method → the reason why it may forward.
FORWARDS = {
    "Connection.close": RESOURCE,
    "EventFile.close": RESOURCE,
    "Executor.load": HOOK,
    "Executor.state": HOOK,
    "Messages.get": RESOURCE,
    "MindSporeTraining.precision_policy": CAPABILITY,
    "PlacedPanel.height": VIEW,
    "Plant.file": "a plant is called by its file",
    "Plant.target": "a plant is called by its target",
    "RecordWriter.close": RESOURCE,
    "Scratch.close": RESOURCE,
    "SplitTraining.precision_policy": CAPABILITY,
    "SubNetwork.load": "called by its name from another rank",
    "Times.clear": RESOURCE,
    "TrialView.train_s": VIEW,
}


def forwards(method: ast.FunctionDef) -> bool:
    """Return whether a method of a class does nothing but forward."""
    body = [s for s in method.body if not isinstance(s, ast.Assert)]
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        del body[0]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    if isinstance(value, ast.Await | ast.YieldFrom):
        value = value.value
    own, given = method.args, list[ast.expr]()
    if isinstance(value, ast.Call):
        given = [a.value if isinstance(a, ast.Starred) else a for a in value.args]
        given += [keyword.value for keyword in value.keywords]
        value = value.func
    names = [arg.arg for arg in (*own.posonlyargs, *own.args)][1:]
    names += [own.vararg.arg] if own.vararg else []
    names += [arg.arg for arg in own.kwonlyargs] + ([own.kwarg.arg] if own.kwarg else [])
    return (
        isinstance(value, ast.Attribute)
        and value.attr == method.name
        and holder(value.value) == "self"
        and [a.id if isinstance(a, ast.Name) else None for a in given] == names
    )


def holder(expression: ast.expr) -> str | None:
    """Return ``self`` for an attribute of self or of its attributes, or ``super()``, whose override
    would change nothing."""
    if isinstance(expression, ast.Call):
        return "self" if getattr(expression.func, "id", "") == "super" else None
    if not isinstance(expression, ast.Attribute | ast.Subscript):
        return None
    while isinstance(expression, ast.Attribute | ast.Subscript):
        expression = expression.value
    return getattr(expression, "id", None)


def methods() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield ``Class.method`` and the method, of every class of core and backends."""
    for package in ("dualml", "dualml_torch", "dualml_ms"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(parse_source(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    for one in node.body:
                        if isinstance(one, ast.FunctionDef):
                            yield f"{node.name}.{one.name}", one


def test_no_class_merely_forwards() -> None:
    assert {name for name, method in methods() if forwards(method)} == FORWARDS.keys()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("def f(self, x, *, y): return self.a.f(x, y=y)", True),
        ("def f(self, x):\n  'Doc.'\n  self.a.b[0].f(x)", True),
        ("def f(self, *x, **y): return super().f(*x, **y)", True),
        ("def f(self): return self.a.f", True),
        ("def f(self, x): return self.a.f(2 * x)", False),
        ("def f(self, x): return self.a.g(x)", False),
        ("def f(self, x): return self.f(x)", False),
        ("def f(self, x): return other.f(x)", False),
        ("def f(self, x):\n  self.n += 1\n  return self.a.f(x)", False),
    ],
)
def test_the_search_finds_what_forwards_and_nothing_else(body: str, expected: bool) -> None:
    (method,) = ast.parse(body).body
    assert isinstance(method, ast.FunctionDef)
    assert forwards(method) is expected


def test_strategies_fill_hooks_and_leave_the_loop_alone() -> None:
    """`Trainer` is the one loop of an update: no strategy overrides a method of it."""
    from dualml.parallel.trainer import Trainer

    classes = [
        (node.name, [getattr(base, "id", "") for base in node.bases], node)
        for package in ("dualml", "dualml_torch", "dualml_ms")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(parse_source(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    strategies, before = {"Trainer"}, 0
    while len(strategies) > before:
        before = len(strategies)
        strategies |= {name for name, bases, _ in classes if strategies & {*bases}}
    loop = {name for name in vars(Trainer) if not name.startswith("__")}
    assert {"step", "run_steps", "make_update", "trace", "state", "load"} <= loop
    assert len(strategies) > 6
    for name, _, node in classes:
        if name in strategies - {"Trainer"}:
            own = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            assert not own & loop, name
