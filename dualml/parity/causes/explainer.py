"""Process that searches for causes: ``python -m dualml.parity.causes.explainer FOLDER SECONDS``.

``job.json`` and both traces are those of the comparison. The first side's model is rebuilt with the
initial weights of its trace. The result is ``FOLDER/explanation.json``; what was asked and answered
on the way is ``FOLDER/search.jsonl``, see `dualml.parity.causes.replay`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.tensor_files import LazyArrays
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.causes.explanation import Explanation
from dualml.parity.causes.graph_host import GraphHost
from dualml.parity.causes.inquiry import Budget
from dualml.parity.causes.located import locate_difference
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.search import search
from dualml.parity.causes.trial_guard import open_guard
from dualml.parity.engine import make_clock
from dualml.parity.models.judge import JudgingSettings
from dualml.parity.models.known_distances import read_distances
from dualml.parity.models.mutation_sentences import NAME
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.side_jobs import has_module
from dualml.parity.models.side_processes import RESULT
from dualml.parity.models.stated import read_settings
from dualml.parity.models.trace import Trace, read_trace
from dualml.parity.models.worker import (
    cast_side,
    load_inputs,
    make_loss,
    make_optimizer,
    prepare_model,
    set_search_path,
)
from dualml.parity.search_log import SEARCH_LOG, SearchLog

#: Share of the time budget for mutations of whole calls; afterwards fused functions are split into
#: their parts.
WHOLE_CALL_TIME_SHARE = 0.6
#: Maximum characters of the code that is shown for a value; beyond it the function's name is shown.
MAX_CODE_CHARS = 60


def run_search(emit: Emitter) -> dict[str, Any]:
    """Search for the causes of the difference in the folder given on the command line.

    Writes result and log there and returns an empty result. A second search, with fused functions
    split, uses the time that is left if the first finds no cause. If the first side's framework
    cannot run with mutations, only the place of the difference is written, without a log.

    Args:
        emit: reports progress to the process that started this one.
    """
    folder = Path(sys.argv[1])
    job = read_json(folder / "job.json")
    own = job["sides"]["a"]
    set_search_path(job, own)
    emit(phase="import", done=0, total=2)
    a, b = (read_trace(folder / side) for side in "ab")
    settings = JudgingSettings(job["margin"], job["map"], side_labels(job))
    if not has_module(f"{own['package']}.parity.causes.explore"):
        found = locate_difference(a, b, settings)
        write_json(folder / RESULT, describe_explanation(found, a, b) | {"unsearched": a.framework})
        return {}
    room: Any = importlib.import_module(f"{own['package']}.models")
    explore: Any = importlib.import_module(f"{own['package']}.parity.causes.explore")
    model, _ = prepare_model(room, job, own)
    recorder = explore.MutatingRecorder(model, None, steps=job["steps"], draws=0, seed=job["seed"])
    recorder.load(a.initial_parameters())
    recorder.keeps_attention = job["keeps_attention"]
    tensors = cast_side(room, own, recorder, load_inputs(room, job, own, folder))
    recorder.optimizer = make_optimizer(room, model, own["optimizer"])
    loss = make_loss(room, own["loss"])
    # What was too large for memory once is so again.
    start = a.initial_parameters() if isinstance(a.arrays, LazyArrays) else None
    explorer = explore.Explorer(
        recorder,
        lambda r: room.step(model, loss, r.optimizer, r, job["targets"]),
        tensors,
        job["steps"],
        None if start is None else folder,
        start and {name: partial(start.__getitem__, name) for name in start},
    )
    emit(phase="search", done=1, total=2)
    explorer.guard = open_guard(folder)
    settings_of = read_settings(folder, "a"), read_settings(folder, "b")
    recorded, known = a, read_distances(folder)

    def search_trace(a: Trace, seconds: float) -> tuple[Explanation, SearchLog]:
        """Search on trace ``a`` for at most ``seconds``."""
        host = GraphHost(
            a,
            b,
            explorer,
            settings,
            settings_of=settings_of,
            known=known if a is recorded else None,
        )
        return search(host, Budget(seconds, stated=True, joint=True), host.evaluate)

    limit_memory()
    budget = float(sys.argv[2])
    clock = make_clock()
    found, log = search_trace(a, WHOLE_CALL_TIME_SHARE * budget)
    if found.computed and not (found.causes or found.equal) and clock() < budget:
        parts = expand_fused(explorer, a)
        if parts is not None:
            again, more = search_trace(parts, budget - clock())
            if again.causes:
                found, log, a = again, more, parts
    write_json(folder / RESULT, describe_explanation(found, a, b))
    log.write(folder / SEARCH_LOG)
    return {}


def side_labels(job: JsonObject) -> tuple[str, str]:
    """Return the names of the two sides of a job."""
    return str(job["sides"]["a"]["label"]), str(job["sides"]["b"]["label"])


def limit_memory() -> None:
    """Limit this process's address space to its present size plus half of the free memory.

    Mutations that need more are refused; otherwise the operating system might kill other processes.
    Does nothing where such limits do not exist.
    """
    import psutil

    free = psutil.virtual_memory().available // 2
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        most = psutil.Process().memory_info().vms + free
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def expand_fused(explorer: Any, a: Trace) -> Trace | None:
    """Run the first side again with fused functions split into their parts, and return the trace.

    None if that gives no more operations, or if the run fails. ``explorer`` keeps splitting
    afterwards.
    """
    explorer.recorder.fused = False
    try:
        trace: Trace = explorer.run([])
    except Exception:
        return None
    if trace.raised or len(trace.operations) <= len(a.operations):
        return None
    return replace(trace, envelope=a.envelope, draws=a.draws, built=a.built, roles=a.roles)


def code_names(change: Mutation, trace: Trace) -> dict[str, str]:
    """Map the values that a mutation mentions to the user's code that computed them; the function's
    name stands for code that is unknown or too long, parameters and inputs for themselves."""

    def code(name: str) -> str:
        """Return the code that computed a value, quoted."""
        number = call_number(name)
        if number is None:
            kind, _, rest = name.partition(":")
            return f"`{rest}`" if kind == "parameter" else f"{kind} {rest}"
        if number >= len(trace.operations):  # made by an earlier mutation
            return name
        made = trace.operations[number]
        line = "" if made.place is None else made.place.code
        return f"`{line}`" if 0 < len(line) <= MAX_CODE_CHARS else f"`{made.name}`"

    said = f"{change.value} {change.old} {change.argument}"
    return {name: code(name) for name in NAME.findall(said)}


def describe_explanation(explanation: Explanation, a: Trace, b: Trace) -> dict[str, Any]:
    """Return an explanation as JSON; every operation also gets the line that built its layer, if
    known."""

    def describe_operation(one: Operation | None, side: Trace) -> dict[str, Any] | None:
        """Return an operation as JSON, with the place where its layer was built."""
        if one is None:
            return None
        line = side.built.get(one.module)
        return one.describe() | ({} if line is None else {"built": asdict(line)})

    return {
        "equal": explanation.equal,
        "enough": explanation.enough,
        "tried": explanation.tried,
        "late": explanation.late,
        "evidence": explanation.evidence,
        "place": describe_operation(explanation.place, a),
        "other": describe_operation(explanation.other, b),
        "causes": [
            {
                "alterations": [
                    asdict(one) | {"names": code_names(one, a)} for one in cause.alterations
                ],
                "place": describe_operation(cause.place, a),
                "other": describe_operation(cause.other, b),
            }
            for cause in explanation.causes
        ],
    }


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_search(emit)
