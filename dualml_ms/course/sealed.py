"""Remove MindSpore's compiled optimizers from the process in which students' code runs."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from types import CodeType
from typing import Any

from mindspore.ops.primitive import Primitive

from dualml.course.forbidden import PRIMITIVES
from dualml.course.guards import refuse_ready_made

#: Modules under which compiled functions of optimizers are found.
COMPILED = ("mindspore._c_expression", "mindspore.ops.auto_generate")
#: Names of primitives that update parameters.
UPDATES = re.compile(
    r"(Sparse|Fused|Resource)*Apply\w*|\w*(Adam|Adagrad|Adadelta|Momentum|RMSProp|Ftrl|Proximal)\w*"
    r"|SGD|LARS\w*|Lamb\w*|pyboost_(adam|sgd|apply)\w*"
)


def seal() -> None:
    """Make primitives of optimizers raise an error when they are constructed, whatever their name,
    and remove MindSpore's compiled functions of optimizers.

    The check is inserted into the code of `Primitive.__init__` itself: there is no other
    constructor left that could be called instead.
    """
    text = textwrap.dedent(inspect.getsource(Primitive.__init__))
    tree = ast.parse(text)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    check = ast.parse("name = _checked_primitive(name)").body
    function.body = [*check, *function.body]
    code = compile(ast.fix_missing_locations(tree), "<primitive>", "exec")
    Primitive.__init__.__code__ = next(c for c in code.co_consts if isinstance(c, CodeType))
    Primitive.__init__.__globals__["_checked_primitive"] = checked_name
    for module in COMPILED:
        for name in list(vars(sys.modules.get(module, object))):
            if UPDATES.fullmatch(name) and not isinstance(getattr(sys.modules[module], name), type):
                delattr(sys.modules[module], name)


def checked_name(name: Any) -> str:
    """Return the name of a primitive; if it is that of an optimizer, refuse it by
    `dualml.course.guards.refuse_ready_made`, which raises."""
    plain = str.__str__(name)  # also of a subclass that overrides __str__
    if plain in PRIMITIVES or UPDATES.fullmatch(plain):
        refuse_ready_made(f"mindspore.ops.{plain}")
    return plain
