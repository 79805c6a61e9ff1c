"""Compare two runs, two recorded traces, or two models."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.common.errors import UserError
from dualml.experiment.store.run_operand import are_run_operands
from dualml.interface.api.runs import Run

if TYPE_CHECKING:
    from dualml.experiment.comparison import Comparison


def compare(a: Any, b: Any, inputs: Any = None, **options: Any) -> Comparison:
    """Compare two runs, two traces, or two models, as ``dualml compare`` does.

    Args:
        a, b: two runs (each a `Run`, its folder or a baseline of it), two traces or dumps of other
            tools, or two models, of PyTorch or MindSpore, as `dualml.parity.compare` takes them.
        inputs: inputs of the models: one array, or several in the order of ``forward``.
        options: those of `dualml.parity.against.compare_runs`, `dualml.parity.compare_traces` or
            `dualml.parity.compare`. All take ``margin``: how many times the measured rounding
            error still counts as equal.

    Raises:
        UserError: the two cannot be compared; the message says what to do.

    Example:
        >>> dualml.compare("runs/before", "runs/after").verdict
        'equal'
    """
    one, other = folder_of(a), folder_of(b)
    if one is None or other is None:
        if inputs is None or one is not other:
            raise UserError(
                "compare takes two runs, two folders of traces, or two models with their inputs"
            )
        from dualml.parity.models.run import compare as compare_models

        return compare_models(a, b, inputs, **options)
    if inputs is not None:
        raise UserError("inputs are of models; runs and traces have been computed already")
    if are_run_operands(one, other):
        from dualml.parity.against import compare_runs

        return compare_runs(one, other, **options)
    from dualml.parity.models.run import compare_traces

    return compare_traces(one, other, **options)


def folder_of(what: Any) -> Path | None:
    """Return the folder of a run or a trace, or None if ``what`` is a model or a text such as
    ``file.py:Name``.

    Raises:
        UserError: the folder does not exist, or the run was loaded from several folders.
    """
    if isinstance(what, Run):
        if len(what.folders) > 1:
            raise UserError(f"{what} is of several folders; compare one of them")
        return what.folders[0]
    if not isinstance(what, str | PathLike):
        return None
    if Path(what).is_dir():
        return Path(what)
    if ":" in str(what):  # file.py:Name
        return None
    raise UserError(f"there is no folder {what}")
