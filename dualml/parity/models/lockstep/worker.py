"""Worker process of one side of a comparison block by block:
``python -m dualml.parity.models.lockstep.worker FOLDER SIDE``.

Side ``a`` says which blocks it has, runs its model and writes what goes into each block and comes
out of it. Side ``b`` pairs the blocks with its own, runs each of them on the same inputs, and
measures distances. Then both run their models once more without the other's activations: ``a`` with
moved weights, ``b`` as it is. Each leaves its results in ``FOLDER/SIDE.blocks.json``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.files import write_json
from dualml.common.tensor_files import LazyArrays
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.models.layers import pair_modules
from dualml.parity.models.lockstep.exchange import RESULT
from dualml.parity.models.lockstep.following import FollowingPass
from dualml.parity.models.lockstep.free import DRIFT_DRAW, FreePass, MovedPass
from dualml.parity.models.lockstep.leading import (
    FORWARD_END,
    GRADIENT_END,
    STOPPED_RECORD,
    LeadingPass,
)
from dualml.parity.models.lockstep.memory import check_memory
from dualml.parity.models.lockstep.pairs import PARAMETER, ParameterPairs
from dualml.parity.models.lockstep.plan import ModelOutline, find_blocks, name_blocks, pair_blocks
from dualml.parity.models.lockstep.rows import RowWriter
from dualml.parity.models.lockstep.side_worker import SideWorker
from dualml.parity.models.lockstep.weights import draw_weights, neutral_weight, open_weights
from dualml.parity.models.model_ref import error_reason, user_line
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import LOW_PRECISION_UNITS
from dualml.parity.places import FLOOR

#: Records: the first side's plan, the second's partners, the first's loss and gradients of
#: parameters outside of blocks.
PLAN, PARTNERS, OUTSIDE_RECORD = "plan", "partners", "outside"


def run_first(worker: SideWorker) -> dict[str, Any]:
    """Plan the blocks and run side ``a``, exchanging records with side ``b``; return its results as
    JSON: rounding envelopes (``widths``), ``drift``, ``blocks`` and more."""
    outline, options = worker.describe_outline(), worker.job["lockstep"]
    named = options["blocks"]
    proposed = name_blocks(named, outline) if named else find_blocks(outline)
    source, constants = open_first_weights(worker, outline)
    check_memory(proposed, outline.tensors, updated=worker.own["optimizer"] is not None)
    plan = {
        "blocks": proposed,
        "named": bool(named),
        "modules": dict(outline.modules),
        "tensors": [one.describe() for one in outline.tensors],
        "empty": worker.access.empty_parameters(),
    }
    worker.exchange.write(PLAN, constants, plan)
    answer = worker.exchange.wait(PARTNERS)
    assert answer is not None
    blocks = list(answer.facts["partners"])
    runner = worker.make_runner(source)
    worker.load_outside(runner, blocks, None)
    worker.intercept(blocks)
    updates = worker.make_updates(runner)
    first = LeadingPass(runner, worker.exchange, updates)

    def end_forward() -> None:
        """Write the record that no further call follows, with the number of calls of each block."""
        calls = {block: first.calls[block] for block in blocks}
        worker.exchange.write(FORWARD_END, {}, {"calls": calls})

    moved = MovedPass(runner, worker.exchange)
    try:
        if (found := worker.run_pass(first, end_forward)) is not None:
            loss, gradients = found
            arrays = {PARAMETER + n: worker.recorder.array(g) for n, g in gradients.items()}
            arrays["loss"] = worker.recorder.array(loss).astype(np.float64).reshape(())
            worker.exchange.write(OUTSIDE_RECORD, arrays, {})
            if updates is not None and gradients:
                first.make_and_write_update(OUTSIDE_RECORD, arrays)
        worker.exchange.write(GRADIENT_END, {}, {})
        worker.load_outside(runner, blocks, DRIFT_DRAW)
        worker.run_pass(moved, forward_only=True, draw=DRIFT_DRAW)
    except Exception:  # a framework may have replaced `OtherSideStoppedError` by one of its own
        if not worker.exchange.has_record(STOPPED_RECORD):
            raise
    return {
        "widths": first.widths,
        "random": first.random,
        "drift": moved.distances,
        "blocks": blocks,
        "left": [one for one in proposed if one not in blocks],
        "updates": None if updates is None else [one for one in blocks if first.calls[one] != 1],
        "modules": dict(outline.modules),
        "environment": worker.recorder.environment(),
    }


def open_first_weights(
    worker: SideWorker, outline: ModelOutline
) -> tuple[LazyArrays, dict[str, Any]]:
    """Return the weights of the first side by name, drawn or read from a file when they are looked
    up, and all its other tensors as arrays; those of the latter that the file has are loaded into
    the model."""
    empty = {*worker.access.empty_parameters()}
    trained = [one for one in outline.tensors if one.name in empty]
    path = worker.job["lockstep"]["weights"]
    if path is None:
        source = draw_weights(worker.job["seed"], trained)
    else:
        source = open_weights(Path(path), outline.tensors)
        for name in source:
            if name not in empty:
                worker.access.load_constant(name, worker.make_tensor(source[name]))
    known = worker.recorder.named_tensors()
    names = [one.name for one in outline.tensors if one.name not in empty]
    return source, {name: worker.recorder.array(known[name]) for name in names}


def run_second(worker: SideWorker) -> dict[str, Any]:
    """Run side ``b`` on the records of side ``a``, and compare; return its results as JSON:
    ``rows``, rounding envelopes (``widths``), ``drift`` and more, with ``raised`` if its model
    raised an error."""
    given = worker.exchange.wait(PLAN)
    assert given is not None
    plan, outline = given.facts, worker.describe_outline()
    theirs = [Tensor(**{**one, "shape": tuple(one["shape"])}) for one in plan["tensors"]]
    pairs = ParameterPairs(theirs, outline.tensors, worker.job["map"], worker.labels)
    modules = pair_modules(plan["modules"], outline.modules, pairs.pairing)
    partners = pair_blocks(
        plan["blocks"],
        (ModelOutline(plan["modules"], theirs), outline),
        pairs.pairing,
        modules,
        worker.labels,
        strict=plan["named"],
    )
    source = convert_source(worker, theirs, pairs, given.arrays, set(plan["empty"]))
    worker.exchange.write(PARTNERS, {}, {"partners": partners})
    runner = worker.make_runner(source)
    back = {other: block for block, other in partners.items()}
    worker.load_outside(runner, list(back), None)
    worker.intercept(list(back))
    dtypes = [side["dtype"] for side in worker.job["sides"].values()]
    unit = max(LOW_PRECISION_UNITS.get(dtype, FLOOR) for dtype in dtypes)
    rows = RowWriter(worker.labels, unit)
    updates = worker.make_updates(runner)
    follow = FollowingPass(runner, worker.exchange, back, modules, pairs, rows, updates)
    free = FreePass(runner, worker.exchange, back)
    raised = None
    pairs.compare_training(rows)
    try:
        found = worker.run_pass(follow, lambda: check_calls(worker, follow))
        if found is not None:
            compare_outside(worker, follow, found)
        worker.run_pass(free, forward_only=True)
    except UserError:
        raise
    except Exception as error:
        import traceback

        traceback.print_exc()
        worker.exchange.write(STOPPED_RECORD, {}, {})
        raised = {
            "text": error_reason(error) + user_line(error, worker.recorder.skip),
            "block": follow.last,
        }
    return {
        "widths": follow.widths,
        "random": follow.random,
        "drift": free.distances,
        "rows": rows.describe(),
        "raised": raised,
        "mapping": [pair.describe() for pair in pairs.pairing.pairs],
        "alone": [list(names) for names in pairs.pairing.unpaired_parameters],
        "lone_states": [sorted(names) for names in follow.lone_states],
        "environment": worker.recorder.environment(),
    }


def convert_source(
    worker: SideWorker,
    theirs: list[Tensor],
    pairs: ParameterPairs,
    constants: Mapping[str, Any],
    empty: set[str],
) -> LazyArrays:
    """Return the weights of the second side by name, each made of the first side's when it is
    looked up, and load the second side's other tensors into its model.

    Args:
        theirs: all tensors of the first side.
        pairs: the tensors of both models, paired.
        constants: the first side's tensors that are not among its weights, as arrays.
        empty: names of the first side's weights.
    """
    path, job = worker.job["lockstep"]["weights"], worker.job
    trained = [one for one in theirs if one.name in empty]
    drawn = (
        draw_weights(job["seed"], trained) if path is None else open_weights(Path(path), trained)
    )
    for name in constants:
        drawn.add(name, constants[name].shape, lambda name=name: constants[name])  # type: ignore[misc]
    source = pairs.convert_weights(drawn)
    mine = {*worker.access.empty_parameters()}
    for one in worker.recorder.tensors():
        if one.name in mine and one.name not in source:
            source.add(one.name, one.shape, lambda one=one: neutral_weight(one.name, one.shape))  # type: ignore[misc]
        elif one.name in source and one.name not in mine:
            worker.access.load_constant(one.name, worker.make_tensor(source[one.name]))
    return source


def check_calls(worker: SideWorker, follow: FollowingPass) -> None:
    """Wait for the end of the first side's forward pass; raise `UserError` if this side has called
    a block less often than the first."""
    end = worker.exchange.wait(FORWARD_END)
    assert end is not None
    back = {block: other for other, block in follow.partners.items()}
    for block, count in end.facts["calls"].items():
        if follow.calls[back[block]] < count:
            raise UserError(
                f"{block} is called {count} times in {worker.labels[0]}, and its partner "
                f"{back[block]} {follow.calls[back[block]]} times in {worker.labels[1]}: name "
                "blocks that both models call alike with --blocks"
            )


def compare_outside(
    worker: SideWorker, follow: FollowingPass, found: tuple[Any, dict[str, Any]]
) -> None:
    """Compare the loss, and the gradients and updates of parameters outside of blocks, with the
    first side's; rows are added to ``follow.rows``.

    Args:
        found: this side's loss, and gradients by name.
    """
    record = worker.exchange.wait(OUTSIDE_RECORD)
    assert record is not None
    loss, gradients = found
    own = worker.recorder.array(loss).astype(np.float64).reshape(())
    follow.rows.add("loss", "", (OUTSIDE_RECORD, "loss", 0.0), "loss", record.arrays["loss"], own)
    arrays = {PARAMETER + n: worker.recorder.view(g) for n, g in gradients.items()}
    follow.parameters.compare(
        follow.rows, "", OUTSIDE_RECORD, record, arrays, {}, "outside gradient"
    )
    if follow.updates is not None and arrays:
        follow.make_and_compare_update("", OUTSIDE_RECORD, record, arrays)


def run_side(emit: Emitter) -> dict[str, Any]:
    """Run the side that the command line names (``FOLDER SIDE``), and write its results to
    ``FOLDER/SIDE.blocks.json``; return an empty dict."""
    folder, letter = Path(sys.argv[1]), sys.argv[2]
    emit(phase="import", done=0, total=1)
    worker = SideWorker(folder, letter, emit)
    run: Callable[[SideWorker], dict[str, Any]] = run_first if letter == "a" else run_second
    write_json(folder / f"{letter}{RESULT}", run(worker))
    return {}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_side(emit)
