"""A request of `dualml simulate` about strategies, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.parallel.aggregation import strategy as find
from dualml.parallel.aggregation.straggler import Straggler
from dualml.planning.cost.closed_form import DEFAULT_SYNC_PERIOD, LOCAL_SGD, check, cost
from dualml.planning.cost.compare import (
    MAX_CROSSOVER_BYTES,
    MIN_CROSSOVER_BYTES,
    crossover_sentence,
    crossovers,
    fastest,
    pairs_to_compare,
    straggler_sentence,
)
from dualml.planning.cost.libraries import LIBRARIES
from dualml.planning.cost.link import Link
from dualml.planning.cost.predict import EVENTS, Prediction, predict
from dualml.planning.cost.simulate import check_slow
from dualml.planning.cost.topology import FLAT, Topology

#: Schedules of more ranks are not printed.
PRINTED = 64
MAX_RANKS = 10**6


@dataclass(frozen=True)
class CostRequest:
    """One question to the cost model.

    Attributes:
        strategies, ranks: rows and columns of the table.
        nbytes: S, the bytes of the vector.
        link: strategy → its constants.
        compute_s, slow, topology, every, seed, engine: as in `predict`.

    Raises:
        UserError: an unknown strategy, an invalid size, or a slow rank that the smallest number of
            ranks lacks.
    """

    strategies: tuple[str, ...]
    ranks: tuple[int, ...]
    nbytes: int
    link: Callable[[str], Link]
    compute_s: float = 0.0
    slow: Straggler | None = None
    topology: Topology = FLAT
    every: int = DEFAULT_SYNC_PERIOD
    seed: int = 0
    engine: str = ""

    def __post_init__(self) -> None:
        for name in self.strategies:
            check(name, min(self.ranks), self.nbytes, every=self.every)
        if self.slow is not None:
            check_slow(self.slow, min(self.ranks))

    def predict(
        self, name: str, n: int, nbytes: int | None = None, events: int = EVENTS
    ) -> Prediction:
        """Predict one strategy of the request, ``name``, for n ranks; ``nbytes`` None: the bytes of
        the request. Up to ``events`` ranks every message is simulated."""
        return predict(
            name,
            n,
            self.nbytes if nbytes is None else nbytes,
            self.link(name),
            self.compute_s,
            slow=self.slow,
            topology=self.topology,
            every=self.every,
            seed=self.seed,
            events=events,
            engine=self.engine,
        )

    def quick_seconds(self, name: str, n: int, nbytes: int) -> float:
        """Return the predicted seconds of an update of a strategy, for a search over many n or
        sizes: events are simulated only for the request's own bytes, and not even there if closed
        forms are exact or delays would have to be drawn."""
        plain = self.slow is None and self.topology.kind == "flat"
        drawn = self.slow is not None and self.slow.jitter_s > 0
        events = 0 if plain or drawn or nbytes != self.nbytes else EVENTS
        return self.predict(name, n, nbytes, events).seconds

    def table(self) -> dict[int, dict[str, Prediction]]:
        """Return n → strategy → prediction, for all numbers of ranks and strategies of the
        request."""
        return {n: {name: self.predict(name, n) for name in self.strategies} for n in self.ranks}

    def sentences(self, table: dict[int, dict[str, Prediction]], lang: str) -> list[str]:
        """Describe the results of `table` as sentences in ``lang``: for each pair to compare
        (`pairs_to_compare`) which is faster over n, and over the size if that changes; with a slow
        rank, which strategy it slows least and most."""
        low, high = max(2, min(self.ranks)), max(self.ranks)
        texts: list[str | None] = []
        for a, b in pairs_to_compare(self.strategies) if low <= high else ():
            over_n = crossovers(a, b, low, high, lambda s, n: self.quick_seconds(s, n, self.nbytes))
            texts.append(crossover_sentence(a, b, over_n, lang))
            over_bytes = crossovers(
                a,
                b,
                MIN_CROSSOVER_BYTES,
                MAX_CROSSOVER_BYTES,
                lambda s, size: self.quick_seconds(s, high, size),
            )
            if len(over_bytes) > 1:
                texts.append(crossover_sentence(a, b, over_bytes, lang, what="bytes", n=high))
        if self.slow is not None:
            well = replace(self, slow=None)
            slowed = {name: p.seconds for name, p in table[high].items()}
            healthy = {name: well.predict(name, high).seconds for name in self.strategies}
            texts.append(straggler_sentence(slowed, healthy, high, lang))
        return [text for text in texts if text]

    def describe(self, lang: str) -> JsonObject:
        """Return as JSON-compatible values the request, for each strategy and number of ranks the
        predicted seconds, bandwidths, messages and bytes, the fastest strategies of each number of
        ranks, and the sentences in ``lang``."""
        table = self.table()
        return {
            "bytes": self.nbytes,
            "compute_s": self.compute_s,
            "topology": str(self.topology),
            "slow": None if self.slow is None else vars(self.slow),
            "links": {name: vars(self.link(name)) for name in self.strategies},
            "predictions": [
                {
                    "strategy": name,
                    "ranks": n,
                    "seconds": p.seconds,
                    "algbw_bytes_per_s": p.algbw,
                    "busbw_bytes_per_s": p.busbw,
                    "how": p.how,
                    "cost": vars(cost(name, n, self.nbytes, every=self.every)),
                    "rank_seconds": None if p.ranks is None else vars(p.ranks),
                }
                for n, column in table.items()
                for name, p in column.items()
            ],
            "fastest": {
                str(n): fastest({name: p.seconds for name, p in column.items()})
                for n, column in table.items()
            },
            "sentences": self.sentences(table, lang),
        }


def parse_ranks(text: str) -> tuple[int, ...]:
    """Parse ``2,4,8``, ``2..100000`` (both ends and the powers of two between), or a mixture of
    both; return them in ascending order, each once.

    Raises:
        UserError: not numbers, a number below 1, or more than a million ranks.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        low, dots, high = (word.strip() for word in part.partition(".."))
        words = [low, high] if dots else [low]
        ends = [int(word) for word in words if word.isdecimal()]
        if len(ends) < len(words) or ends[0] < 1 or ends != sorted(ends):
            raise UserError(f"ranks {text!r}: write 2,4,8 or 2..100000, numbers from 1")
        if ends[-1] > MAX_RANKS:
            raise UserError(f"ranks {text!r}: at most {MAX_RANKS:,}")
        powers = (1 << i for i in range(ends[-1].bit_length()))
        ranks |= {*ends, *(p for p in powers if ends[0] < p < ends[-1])}
    return tuple(sorted(ranks))


def schedule_grids(strategies: Sequence[str], ranks: Sequence[int], every: int) -> dict[str, str]:
    """Return strategy → printed schedule for the one number in ``ranks``; a strategy that has no
    steps of its own has a sentence in place of its schedule.

    Raises:
        UserError: several n, one above 64, or an unknown strategy.
    """
    if len(ranks) != 1 or not 1 <= ranks[0] <= PRINTED:
        raise UserError(
            f"a schedule is printed for one n up to {PRINTED}, as in --schedule --ranks 4; "
            f"received {', '.join(map(str, ranks))}"
        )
    grids = {
        LOCAL_SGD: f"ring, every {every} updates",
        ASYNCHRONOUS: "no steps: each worker pushes to the server and pulls when it is ready",
        **dict.fromkeys(LIBRARIES, "no messages of dualml: priced by its formula alone"),
    }
    for name in strategies:
        check(name, ranks[0])
    return {name: grids.get(name) or find(name).schedule(ranks[0]).grid() for name in strategies}
