"""Key code: the optimizers of the run, and the code of its parallel training."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.algorithms.optim import RULES
from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.parallel.aggregation.asynchronous import AsyncParameterServer
from dualml.parallel.partition import PARTITIONS
from dualml.report import ranks
from dualml.report.blocks import Block, Code
from dualml.report.code import (
    HOMES,
    base_listings,
    code_sections,
    excerpt,
    read_listings,
    rule_listings,
    section,
)
from dualml.report.run_partitions import (
    SKEWED,
    partition_rule,
    partition_settings,
    partitioned_arms,
)
from dualml.report.topics import ReportSection


def rule_code(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield each optimizer's rule in the reference and in each framework, then the code they
    share."""
    present = {run.framework(b) for b in run.backends}
    # The reference is always shown: it follows the notation of the paper.
    frameworks = [f for f in HOMES if f == "numpy" or f in present]
    rules = [run.arms[arm].get("optimizer") or {} for arm in ranks.training_arms(run)]
    for name in dict.fromkeys(str(given.get("name")) for given in rules):
        if name in RULES:
            yield section(name, rule_listings(name, frameworks), words)
    if rules:
        yield section(words("page.shared"), base_listings(frameworks), words)


def rank_code(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the code of the strategies used, of their execution, and of the communicators; with
    multi-rank arms also of parallel training and its partitions. Nothing for a run without
    strategies."""
    strategies = [code for name in ranks.strategies(run) for code in _strategy_code(name)]
    if not strategies:
        return
    parts: dict[str, list[Code]] = {}
    if ranks.multi_rank_arms(run):
        parts["parallel"] = read_listings("parallel")
        parts |= _partition_listings(run)
    parts["strategies"] = strategies
    parts["execute"] = read_listings("execute")
    present = {run.framework(b) for b in run.backends}
    parts["communicator"] = read_listings("communicator", present)
    yield from code_sections(parts, words)


def _strategy_code(name: str) -> Iterator[Code]:
    """Yield the code of a strategy; for one made of single messages also its schedule. Nothing for
    names that are neither in `STRATEGIES` nor the asynchronous server."""
    if name == ASYNCHRONOUS:
        yield _class_code(
            AsyncParameterServer, ("push_gradient", "handle_push", "apply_gradient"), name
        )
    elif name in STRATEGIES:
        kind = STRATEGIES[name]
        yield _class_code(
            kind,
            ("reduce_steps", "broadcast_steps", "sum", "schedule")
            if kind.is_point_to_point
            else ("sum",),
            name,
        )


def _class_code(kind: type, names: tuple[str, ...], title: str) -> Code:
    """Return the functions and methods called ``names`` in the file of a class, of all its classes
    (none that are inherited from another file), with ``title`` in place of the framework."""
    return excerpt(f"{kind.__module__.replace('.', '/')}.py", names, title)


def _partition_listings(run: RunData) -> dict[str, list[Code]]:
    """Return listings by section: the code of up to two plain partitions of those used and of the
    shortest skewed one (``partition``), and the code that averages parameters if an arm does
    (``local``)."""
    arms = partitioned_arms(run)
    methods = {"distributed_sampler": ("ordered_indices",), "feature_noise": ("features",)}
    used = [
        _class_code(PARTITIONS[name], methods.get(name, ("assign",)), name)
        for name in dict.fromkeys(partition_rule(run, arm) for arm in arms)
        if name in PARTITIONS
    ]
    plain = [code for code in used if code.who not in SKEWED]
    # Prefer skewed labels to skewed features, and short code.
    skewing = sorted(
        (code for code in used if code.who in SKEWED),
        key=lambda code: (code.who == "feature_noise", len(code.text)),
    )
    averaged = any(
        run.settings[a].aggregation.every > 1 and partition_settings(run, a) for a in arms
    )
    local = read_listings("local") if averaged else []
    return {"partition": plain[:2] + skewing[:1], "local": local}


TOPICS = (
    ReportSection("rank_code", 10, rank_code, group="code"),
    ReportSection("rule_code", 90, rule_code, group="code"),
)
