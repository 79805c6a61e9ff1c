"""Random mistakes: change one arbitrary expression of a correct port.

    python benchmarks/ports/mutants.py [--seed S] [--per N] [--jobs N] [--only NAME …] [--out FILE]

The mistakes that a user would typically make are in the other files of this folder. These changes
are drawn by a seed and know nothing of how causes are found. Mutants that do not run, or that
compute the same, are not counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from run import HERE, MODELS, Port, judged

#: Functions that replace each other.
FAMILIES = (
    ("relu", "gelu", "silu", "elu", "sigmoid", "tanh"),
    ("sum", "mean"),
    ("max", "mean"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("sin", "cos"),
    ("maximum", "minimum"),
    ("softmax", "log_softmax"),
    ("square", "abs"),
    ("logsigmoid", "sigmoid"),
)
COMPARISONS = {"<=": "<", ">=": ">", "<": "<=", ">": ">=", "==": "!="}
#: Calls without a tensor.
PLAIN = ("range", "zip", "enumerate", "super", "len", "float", "int", "Tensor")


@dataclass(frozen=True)
class Mutant:
    """A replacement of some bytes of a source."""

    kind: str
    start: int
    end: int
    text: str


class Mutations:
    """All changes of a single expression or statement of a source."""

    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.tree = ast.parse(source)
        self.parents = {c: p for p in ast.walk(self.tree) for c in ast.iter_child_nodes(p)}

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: Any) -> str:
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def make_mutant(self, kind: str, node: Any, text: str) -> Mutant:
        return Mutant(kind, *self.span(node), text)

    def __iter__(self) -> Iterator[Mutant]:
        for function in ast.walk(self.tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            inside = [node for one in function.body for node in ast.walk(one)]
            for node in inside:
                yield from self.numbers(node)
                if function.name != "__init__":
                    yield from self.expressions(node, function, inside)
            if function.name != "__init__":
                for block in (one.body for one in (function, *inside) if hasattr(one, "body")):
                    if isinstance(block, list):
                        yield from self.statements(block)

    def numbers(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield self.make_mutant("bool", node, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            n = node.value
            for value in (n + 1, n - 1) if isinstance(n, int) else (2 * n, n / 2, 10 * n):
                yield self.make_mutant("number", node, repr(value))
        elif isinstance(node, ast.keyword):
            start, end = self.span(node)
            comma = self.raw.rfind(b",", 0, start)
            if comma > 0 and not self.raw[comma + 1 : start].strip():
                yield Mutant("default", comma, end, "")

    def expressions(
        self, node: ast.AST, function: ast.FunctionDef, inside: Sequence[ast.AST]
    ) -> Iterator[Mutant]:
        if isinstance(node, ast.BinOp):
            left, right = self.text(node.left), self.text(node.right)
            sign = self.raw[self.span(node.left)[1] : self.span(node.right)[0]].decode().strip()
            yield self.make_mutant("left", node, f"({left})")
            yield self.make_mutant("right", node, f"({right})")
            if isinstance(node.op, ast.Sub | ast.Div | ast.Pow | ast.MatMult):
                yield self.make_mutant("swap", node, f"({right}) {sign} ({left})")
            if (new := {"+": "-", "-": "+", "*": "/", "/": "*"}.get(sign)) is not None:
                yield self.make_mutant("sign", node, f"({left}) {new} ({right})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            if not isinstance(node.operand, ast.Constant):
                yield self.make_mutant("sign", node, f"({self.text(node.operand)})")
        elif isinstance(node, ast.Compare):
            between = self.raw[self.span(node.left)[1] : self.span(node.comparators[0])[0]]
            if (sign := COMPARISONS.get(between.decode().strip())) is not None:
                new = f"{self.text(node.left)} {sign} {self.text(node.comparators[0])}"
                yield self.make_mutant("compare", node, new)
        elif isinstance(node, ast.Call):
            yield from self.calls(node, function)
        elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
            for x, y in zip(node.elts, node.elts[1:], strict=False):
                order = f"{self.text(y)}, {self.text(x)}"
                yield Mutant("tuple", self.span(x)[0], self.span(y)[1], order)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            known = {
                one.id
                for one in inside
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
            known |= {one.arg for one in function.args.args} - {"self"}
            if node.id in known:
                yield from (
                    self.make_mutant("name", node, one) for one in sorted(known - {node.id})
                )

    def calls(self, node: ast.Call, function: ast.FunctionDef) -> Iterator[Mutant]:
        name = self.text(node.func)
        if node.args and not isinstance(node.args[0], ast.Constant | ast.Starred):
            if name not in PLAIN:
                first = self.text(node.args[0])
                rest = self.raw[self.span(node.args[0])[1] : self.span(node)[1]].decode()
                yield self.make_mutant("drop", node, f"({first})")
                yield self.make_mutant("twice", node, f"{name}({self.text(node)}{rest}")
                yield self.make_mutant("detach", node.args[0], f"ops.stop_gradient({first})")
        elif isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
            yield self.make_mutant("drop", node, f"({self.text(node.func.value)})")
        if isinstance(node.func, ast.Attribute):
            word, end = node.func.attr, self.span(node.func)[1]
            others = {o for family in FAMILIES if word in family for o in family}
            for one in sorted(others - {word}):
                yield Mutant("function", end - len(word), end, one)
            if self.text(node.func.value) == "self":
                for one in sorted(self.modules(self.parents[function]) - {word}):
                    yield Mutant("module", end - len(word), end, one)
        if len(node.args) > 1 and not any(isinstance(one, ast.Starred) for one in node.args[:2]):
            x, y = node.args[:2]
            order = f"{self.text(y)}, {self.text(x)}"
            yield Mutant("arguments", self.span(x)[0], self.span(y)[1], order)

    def modules(self, owner: ast.AST) -> set[str]:
        """Return the names of the modules that a class calls."""
        calls = [one.func for one in ast.walk(owner) if isinstance(one, ast.Call)]
        return {
            f.attr for f in calls if isinstance(f, ast.Attribute) and self.text(f.value) == "self"
        }

    def statements(self, block: Sequence[ast.stmt]) -> Iterator[Mutant]:
        plain = ast.Assign | ast.AugAssign | ast.Expr
        for one, then in zip(block, [*block[1:], None], strict=True):
            if not isinstance(one, plain) or "super()" in self.text(one):
                continue
            if not isinstance(one, ast.Assign) or self.changes_itself(one):
                yield self.make_mutant("delete", one, "pass")
            if isinstance(then, plain):
                start, end = self.span(one)[0], self.span(then)[1]
                between = self.raw[self.span(one)[1] : self.span(then)[0]].decode()
                order = self.text(then) + between + self.text(one)
                yield Mutant("statements", start, end, order)

    def changes_itself(self, one: ast.Assign) -> bool:
        target = one.targets[0]
        names = {x.id for x in ast.walk(one.value) if isinstance(x, ast.Name)}
        return isinstance(target, ast.Name) and target.id in names


def choose_mutants(source: str, seed: str, count: int) -> list[Mutant]:
    """Return some mutants that parse, with each kind equally likely."""
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in Mutations(source):
        kinds[mutant.kind].append(mutant)
    rng, found = random.Random(seed), dict[Mutant, None]()
    for _ in range(20 * count):
        mutant = rng.choice(kinds[rng.choice(sorted(kinds))])
        try:
            ast.parse(applied(source, mutant))
        except SyntaxError:
            continue
        found[mutant] = None
        if len(found) == count:
            break
    return list(found)


def applied(source: str, mutant: Mutant) -> str:
    """Return the source with one mutant's bytes replaced."""
    raw = source.encode()
    return (raw[: mutant.start] + mutant.text.encode() + raw[mutant.end :]).decode()


def compared(name: str, case: dict[str, Any], mutant: Mutant) -> dict[str, Any]:
    """Compare one mutant with the original and return its row."""
    file = MODELS / case["mindspore"]
    source, start = file.read_text(), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dualml-mutant-") as folder:
        copy = Path(folder) / file.name
        copy.write_text(applied(source, mutant))
        row = judged(Port(name, case, copy))
    raw = source.encode()
    line = raw[: mutant.start].count(b"\n")
    row |= {
        "mutation": mutant.kind,
        "line": line + 1,
        "before": raw[mutant.start : mutant.end].decode(),
        "after": mutant.text,
        "seconds": time.perf_counter() - start,
        "named": bool((row.get("explanation") or {}).get("causes")),
    }
    # What no longer runs is no mistake that anybody would overlook.
    ended = (row.get("first") or {}).get("kind") in ("raised", "outputs")
    return row | {"counts": row["verdict"] == "different" and not ended}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--per", type=int, default=3, help="of each port")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    work = []
    for toml in sorted(HERE.glob("*.toml")):
        case = tomllib.loads(toml.read_text())
        source = (MODELS / case["mindspore"]).read_text()
        for i, mutant in enumerate(choose_mutants(source, f"{given.seed}:{toml.stem}", given.per)):
            name = f"{toml.stem}-{given.seed}-{i}"
            if not given.only or name in given.only:
                work.append(partial(compared, name, case, mutant))
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(lambda one: one(), work):
            rows.append(row)
            flag = "named" if row["named"] else "no cause" if row["counts"] else ""
            print(f"{row['name']:32} {row['mutation']:10} {row['verdict']:14} {flag}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1))
    counted = [row for row in rows if row["counts"]]
    named = sum(row["named"] for row in counted)
    print(f"{len(rows)} mutants, {len(counted)} count, a cause is named for {named}")


if __name__ == "__main__":
    sys.exit(main())
