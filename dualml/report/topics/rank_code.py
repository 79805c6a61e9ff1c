"""Key code of several ranks: the strategies used, what carries them out, the communicators."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.aggregation.asynchronous import Asynchronous
from dualml.partition import PARTITIONS
from dualml.report import ranks
from dualml.report.blocks import Block, Section
from dualml.report.code import Listing, excerpt
from dualml.report.deals import SKEWED, dealt, partition, rule
from dualml.report.topics import Topic
from dualml.report.topics.rule_code import side_by_side
from dualml.store.run import Run
from dualml.words import Words

#: Framework → its communicator and what of it is short and instructive.
COMMUNICATORS = {
    "torch": ("dualml_torch/communicator.py", ("_exchange", "_all_reduce_now")),
    "mindspore": ("dualml_ms/communicator.py", ("_exchange", "_all_reduce_native")),
}
MOST_LINES = 90  # of a communicator's methods; of longer ones the first alone is shown


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """What this run's strategies are made of."""
    strategies = [part for name in ranks.strategies(run) for part in _strategy(name)]
    if not strategies:
        return
    parts: dict[str, list[Listing]] = {}
    if ranks.several(run):
        parts["parallel"] = [excerpt("dualml/aggregation/parallel.py", ("step", "deal"))]
        parts |= _dealing(run)
    parts["strategies"] = strategies
    parts["execute"] = [excerpt("dualml/aggregation/base.py", ("execute",))]
    present = {run.framework(b) for b in run.backends}
    parts["communicator"] = [_communicator(f) for f in COMMUNICATORS if f in present]
    for key, listings in parts.items():
        if listings:
            yield Section("", words(f"code.{key}"), list(side_by_side(listings, words)))


def _strategy(name: str) -> Iterator[Listing]:
    """How it adds up; of one made of single messages also who sends what."""
    if name == ASYNCHRONOUS:
        yield _own(Asynchronous, ("deliver", "serve", "apply"), name)
    elif name in STRATEGIES:
        kind = STRATEGIES[name]
        yield _own(kind, ("up", "down", "sum", "schedule") if kind.counted else ("sum",), name)


def _own(kind: type, names: tuple[str, ...], title: str) -> Listing:
    return excerpt(f"{kind.__module__.replace('.', '/')}.py", names, title)


def _communicator(framework: str) -> Listing:
    file, names = COMMUNICATORS[framework]
    whole = excerpt(file, names, framework)
    if len(whole.text.splitlines()) <= MOST_LINES:
        return whole
    return excerpt(file, names[:1], framework)


def _dealing(run: Run) -> dict[str, list[Listing]]:
    """Two plain partitions of those used and the shortest that skews; what averages parameters."""
    arms = dealt(run)
    used = [name for name in dict.fromkeys(rule(run, arm) for arm in arms) if name in PARTITIONS]
    plain = [_rule(name) for name in used if name not in SKEWED]
    skewing = [_rule(name) for name in used if name in SKEWED]
    # Labels rather than features, and the shorter the better.
    skewing.sort(key=lambda x: (x.framework == "feature_noise", len(x.text)))
    local = "dualml/aggregation/local_sgd.py"
    averaged = any(run.settings[a].aggregation.every > 1 and partition(run, a) for a in arms)
    return {
        "partition": plain[:2] + skewing[:1],
        "local": [excerpt(local, ("weight", "average", "measure"))] if averaged else [],
    }


def _rule(name: str) -> Listing:
    """How a partition deals."""
    methods = {"distributed_sampler": ("deal",), "feature_noise": ("noisy",)}
    return _own(PARTITIONS[name], methods.get(name, ("own",)), name)


TOPIC = Topic("rank_code", 10, evidence, part="code")
