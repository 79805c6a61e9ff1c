"""Key code of several ranks: the strategies used, what carries them out, the communicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.aggregation import ASYNCHRONOUS
from dualml.partition import PARTITIONS
from dualml.report import ranks
from dualml.report.code import Listing, excerpt
from dualml.report.deals import SKEWED, dealt, partition, rule
from dualml.report.model import Run
from dualml.report.words import Words

#: Strategy → file and what of it says how it works.
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "all_reduce": ("all_reduce", ("sum",)),
    "all_gather": ("all_gather", ("sum",)),
    "reduce_broadcast": ("reduce_broadcast", ("sum",)),
    "parameter_server": ("parameter_server", ("sum",)),
    "reduce_scatter_all_gather": ("reduce_scatter", ("sum",)),
    "ring": ("ring", ("sum", "schedule")),
    "tree": ("tree", ("up", "down", "sum", "schedule")),
    "halving_doubling": ("halving_doubling", ("sum", "schedule")),
    "neighbour": ("neighbour", ("sum", "schedule")),
    ASYNCHRONOUS: ("asynchronous", ("deliver", "serve", "apply")),
}
#: Framework → its communicator and what of it is short and instructive.
COMMUNICATORS = {
    "torch": ("dualml_torch/communicator.py", ("_exchange", "_all_reduce_now")),
    "mindspore": ("dualml_ms/communicator.py", ("_exchange", "_all_reduce_native")),
}
MOST_LINES = 90  # of a communicator's methods; of longer ones the first alone is shown


@dataclass(frozen=True)
class Excerpts:
    """Listings under one heading; ``code``: the heading is a name of the program."""

    title: str
    listings: Sequence[Listing]
    code: bool = False


def rank_code(run: Run, words: Words) -> list[Excerpts]:
    """What this run's strategies are made of; empty where all arms have one rank."""
    used = [name for name in ranks.strategies(run) if name in FILES]
    if not used:
        return []
    made = []
    if ranks.several(run):
        listing = excerpt("dualml/aggregation/parallel.py", ("step", "deal"))
        made.append(Excerpts(words("code.parallel"), [listing]))
        made += _dealing(run, words)
    strategies = [
        excerpt(f"dualml/aggregation/{file}.py", names, name)
        for name in used
        for file, names in [FILES[name]]
    ]
    made.append(Excerpts(words("code.strategies"), strategies))
    listing = excerpt("dualml/aggregation/base.py", ("execute",))
    made.append(Excerpts(words("code.execute"), [listing]))
    present = {run.framework(b) for b in run.backends}
    shown = [_short(framework) for framework in COMMUNICATORS if framework in present]
    if shown:
        made.append(Excerpts(words("code.communicator"), shown))
    return made


def _short(framework: str) -> Listing:
    file, names = COMMUNICATORS[framework]
    whole = excerpt(file, names, framework)
    if len(whole.text.splitlines()) <= MOST_LINES:
        return whole
    return excerpt(file, names[:1], framework)


def _dealing(run: Run, words: Words) -> list[Excerpts]:
    """Two plain partitions of those used and the shortest that skews; what averages parameters."""
    arms = dealt(run)
    used = [name for name in dict.fromkeys(rule(run, arm) for arm in arms) if name in PARTITIONS]
    chosen = [_rule(name) for name in used if name not in SKEWED][:2]
    skewing = [_rule(name) for name in used if name in SKEWED]
    # Labels rather than features, and the shorter the better.
    skewing.sort(key=lambda x: (x.framework == "feature_noise", len(x.text)))
    chosen += skewing[:1]
    made = []
    if chosen:
        made.append(Excerpts(words("code.partition"), chosen))
    if any(ranks.aggregation(run, arm)["every"] > 1 and partition(run, arm) for arm in arms):
        listing = excerpt("dualml/aggregation/local_sgd.py", ("weight", "average", "measure"))
        made.append(Excerpts(words("code.local"), [listing]))
    return made


def _rule(name: str) -> Listing:
    """How a partition deals."""
    where = PARTITIONS[name].__module__.replace(".", "/")
    methods = {"distributed_sampler": ("deal",), "feature_noise": ("noisy",)}
    return excerpt(f"{where}.py", methods.get(name, ("own",)), name)
