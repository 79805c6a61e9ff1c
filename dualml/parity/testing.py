"""Assertions for test suites: a port must compute what its original computes."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

from dualml.backend import backends
from dualml.parity.models.comparison import ModelComparison


def assert_parity(
    torch_module: Any, mindspore_cell: Any, inputs: Any, **options: Any
) -> ModelComparison:
    """Assert that a model and its port are equal, under pytest and unittest alike.

    Compares them as `dualml.parity.compare` does, and returns the comparison.

    Args:
        torch_module, mindspore_cell, inputs: as `dualml.parity.compare` takes them.
        options: those of `dualml.parity.compare`.

    Raises:
        AssertionError: any verdict but ``equal``; the text describes the first divergence,
            with one line per phase.
        unittest.SkipTest: a framework is not installed (pytest counts it as skipped, too).
        UserError: the two cannot be compared.

    Example:
        >>> HERE = Path(__file__).parent  # otherwise relative to the folder of pytest
        >>> def test_port():
        ...     torch_net, port = f"{HERE}/nets.py:TorchNet", f"{HERE}/nets_ms.py:Net"
        ...     assert_parity(torch_net, port, np.ones((2, 8), "float32"))
    """
    from dualml.parity.models.run import FRAMEWORKS, compare

    __tracebackhide__ = True  # pytest shows the test, not this
    known = backends()
    missing = [known[name] for name in FRAMEWORKS if not known[name].installed()]
    if missing:
        raise unittest.SkipTest(
            ", ".join(f"{info.framework} is not installed ({info.install})" for info in missing)
        )
    comparison = compare(torch_module, mindspore_cell, inputs, **options)
    if not comparison.equal:
        raise AssertionError("\n".join([comparison.paragraph(), *phase_lines(comparison)]))
    return comparison


def phase_lines(comparison: ModelComparison) -> Iterator[str]:
    """Yield one line per compared phase about the array with the largest ratio to its rounding,
    inside or outside the margin."""
    for phase, worst in comparison.phases.items():
        yield (
            f"{phase}: {worst['arrays']} arrays, farthest {worst['tensor']} at step "
            f"{worst['step']}, {worst['distance']:.1e} apart, {worst['ratio']:.3g} times rounding"
        )
