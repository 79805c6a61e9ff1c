"""Assertions for test suites: two models must compute the same."""

from __future__ import annotations

import unittest
from typing import Any

from dualml.backend import backends
from dualml.common.former_members import rename_keywords
from dualml.parity.models.comparison import ModelComparison


@rename_keywords({"torch_module": "a", "mindspore_cell": "b"})
def assert_parity(a: Any, b: Any, inputs: Any, **options: Any) -> ModelComparison:
    """Assert that two models are equal, under pytest and unittest alike: a model and its port, two
    implementations, or one model in two modes.

    Compares them as `dualml.parity.compare` does, and returns the comparison.

    Args:
        a, b, inputs: as `dualml.parity.compare` takes them.
        options: those of `dualml.parity.compare`.

    Raises:
        AssertionError: any verdict but ``equal``; the text is the page that ``dualml compare``
            prints: place, source lines, numbers, cause.
        unittest.SkipTest: a framework is not installed (pytest counts it as skipped, too).
        UserError: the two cannot be compared.

    Example:
        >>> HERE = Path(__file__).parent  # otherwise relative to the folder of pytest
        >>> def test_port():
        ...     torch_net, port = f"{HERE}/nets.py:TorchNet", f"{HERE}/nets_ms.py:Net"
        ...     assert_parity(torch_net, port, np.ones((2, 8), "float32"))
    """
    from dualml.parity.models.model_ref import to_import_spec
    from dualml.parity.models.run import compare
    from dualml.parity.models.side_jobs import name_frameworks
    from dualml.parity.models.sides import Side

    __tracebackhide__ = True  # pytest shows the test, not this
    known = backends()
    models = [to_import_spec(one, f"model {x}") for one, x in ((a, "A"), (b, "B"))]
    names = name_frameworks((a, b), models, options.get("sides", (Side(), Side())))
    needed = [known[name] for name in dict.fromkeys(names) if name in known]
    missing = [info for info in needed if not info.installed()]
    if missing:
        raise unittest.SkipTest(
            ", ".join(f"{info.framework} is not installed ({info.install})" for info in missing)
        )
    comparison = compare(a, b, inputs, **options)
    if not comparison.equal:
        raise AssertionError(comparison.page())
    return comparison
