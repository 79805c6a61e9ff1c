"""Check that the ranks of a trial train one model, by their weights and by the bytes they send.

A rank that trains by itself on its part of the batch learns, too, and reaches a similar accuracy,
so no other result of a trial reveals the error. Whichever code makes the updates, the ranks compare
digests of the weights that must be identical after the first update and after the last one, and the
bytes sent per update are compared with the closed form of the aggregation.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.common.errors import TrialError
from dualml.experiment.store.agreement import DIVERGED_REASON
from dualml.parallel.copies import Promise, WeightCopies
from dualml.parallel.split.shards import all_gather_arrays
from dualml.runner.worker.ranks import MultiRank
from dualml.runner.worker.step_timer import StepTimer

#: Copies that receive the same sum differ only by the rounding of the update: a few units in the
#: last place, which accumulate like the steps of a random walk.
ULPS = 16.0
#: Share of the closed form that must have been sent. Frames and headers add to it, and a framework
#: may send more; a sum over the ranks cannot be computed with less. The tolerance covers the last
#: batch of an epoch, which is smaller, and sockets that were opened or closed.
MIN_SENT_SHARE = 0.9
#: Number of blocks in the sketch of a tensor, by which two copies are compared.
BLOCKS = 4096
REMEDY = "see that every parameter takes part in the exchange, in every update"
#: Size in bytes and number of the messages that measure how often the engine sends each byte.
MESSAGE, MESSAGES = 2**15, 16
MAX_NAMED_PARAMETERS = 3  # parameters that a message names


class RankConsistencyCheck:
    """Consistency checks on the ranks of one trial; every rank makes one, for which they exchange
    messages, and calls the same methods.

    Args:
        ranks: the ranks of the trial, as this rank sees them.
        arm: name of the arm, for messages.
        how: the aggregation that combines the ranks, for messages.
        shapes: parameter → shape.
        first, last: numbers of the first and the last update that this process makes.
        earlier: records of checks made by an earlier process of the same trial.
    """

    def __init__(
        self,
        ranks: MultiRank,
        arm: str,
        how: str,
        shapes: Mapping[str, tuple[int, ...]],
        first: int,
        last: int,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.ranks, self.trainer, self.comm = ranks, ranks.trainer, ranks.comm
        self.arm, self.how, self.shapes = arm, how, shapes
        self.first, self.last = first, last
        self.steps = self.trainer.steps_to_compare(first, last) if first <= last else []
        #: How often the engine sends each byte; None where its traffic cannot be counted.
        self.send_factor = (
            self.measure_send_factor() if self.trainer.counts_all_bytes and first <= last else None
        )
        self.checks = [dict(check) for check in earlier]

    def compare_weights(self, step: int) -> None:
        """Compare the ranks' weights after update ``step`` and record the result in `checks`, of
        which the first and the last are kept. Do nothing for updates that are not in `steps`, and
        where no weights have to be equal. All ranks call it.

        Raises:
            TrialError: copies differ by more than rounding explains.
        """
        if step not in self.steps or (copies := self.trainer.copies()) is None:
            return
        sha256, apart, far = compare_copies(self.comm, copies, step)
        self.checks = self.checks[:1] if len(self.checks) > 1 else self.checks
        self.checks.append({"update": step, "sha256": sha256, "apart": apart[0], "limit": apart[1]})
        if not far:
            return
        named = ", ".join(
            f"{name} by {distance:.2g}" for name, distance in far[:MAX_NAMED_PARAMETERS]
        )
        more = (
            f" and {len(far) - MAX_NAMED_PARAMETERS} more"
            if len(far) > MAX_NAMED_PARAMETERS
            else ""
        )
        raise TrialError(
            f"{DIVERGED_REASON}: arm {self.arm}: after update {step} the {self.ranks.size} ranks "
            f"hold other numbers where {self.how} should keep them equal: {named}{more} (relative "
            f"to their size; rounding comes to {apart[1]:.1g} at most); {REMEDY}"
        )

    def finish(self, timer: StepTimer) -> dict[str, Any]:
        """Compare the bytes sent per update by all ranks with the closed form, if both are known,
        and return the record of all checks, the content of an `AgreementRecord`; all ranks call it.

        Args:
            timer: the step timer of this rank, with the bytes it has sent.

        Raises:
            TrialError: fewer bytes were sent than the closed form requires, or averaging with
                neighbours did not change the weights.
        """
        updates = self.last - self.first + 1
        sent = closed = None
        if self.send_factor is not None:
            done = self.ranks.feed.count_sample_gradients
            samples = done(self.last) - done(self.first - 1)
            closed = self.trainer.expected_sent_bytes(self.shapes, self.first, self.last, samples)
            total = self.sum_sent_bytes(timer.sent_bytes)
            sent = None if total is None else total / updates / self.send_factor
        if sent is not None and closed is not None and sent < MIN_SENT_SHARE * closed:
            raise TrialError(
                f"{DIVERGED_REASON}: arm {self.arm}: an update by {self.how} moves {closed:,.0f} "
                f"bytes between {self.ranks.size} ranks, and {sent:,.0f} were sent; {REMEDY}"
            )
        averagings = self.trainer.effective_averagings(self.first, self.last)
        if averagings is not None:
            averagings = -self.ranks.max_over_ranks(-averagings)
        if averagings is not None and averagings < MIN_SENT_SHARE:
            raise TrialError(
                f"{DIVERGED_REASON}: arm {self.arm}: by {self.how} all averagings with neighbours "
                f"change a rank's weights, and {averagings:.0%} did so; {REMEDY}"
            )
        facts = {
            "sent_bytes": sent,
            "times_sent": self.send_factor,
            "closed_bytes": closed,
            "averagings": averagings,
        }
        promise: Promise = self.trainer.promise
        known = {key: value for key, value in facts.items() if value is not None}
        return {"promise": promise, "checks": self.checks, **known}

    def measure_send_factor(self) -> float | None:
        """Measure, by messages around the ring, how often the engine sends each byte (MindSpore's
        CPU engine sends it twice); all ranks call it.

        Returns:
            The factor; None where a message is not counted, because it goes through shared memory.
        """
        comm, before = self.comm, None
        message = comm.tensor(np.zeros(MESSAGE // 4, np.float32))
        to, of = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        for number in range(MESSAGES + 1):
            # Late answers of the engine's threads, also to earlier messages, are a small part.
            comm.exchange({to: message}, {of: comm.empty_like(message)})
            if not number:
                comm.barrier()
                before = comm.count_sent_bytes()
        comm.barrier()
        after = comm.count_sent_bytes()
        known = before is not None and after is not None
        total = self.sum_sent_bytes(after - before if known else None)  # type: ignore[operator]
        times = None if total is None else total / (comm.size * MESSAGE * MESSAGES)
        return None if times is None or times < MIN_SENT_SHARE else times

    def sum_sent_bytes(self, sent: int | None) -> float | None:
        """Return the sum of ``sent`` over all ranks; None if one of them passes None, because it
        cannot count its own. All ranks call it."""
        comm = self.comm
        own = comm.tensor(np.array([np.nan if sent is None else sent], np.float64))
        total = sum(float(comm.numpy(x)[0]) for x in comm.all_gather(own))
        return None if math.isnan(total) else total


#: Parameters beyond the limit with their distances.
ExcessDistances = list[tuple[str, float]]


def compare_copies(
    comm: Communicator, copies: WeightCopies, step: int
) -> tuple[str, tuple[float, float], ExcessDistances]:
    """Compare the weights that several ranks hold; all ranks call it, and all get the result.

    Arrays with one key are compared by digest; only for unequal ones the distance is estimated.

    Args:
        step: number of updates made, with which the limit grows.

    Returns:
        The SHA-256 over all ranks; the largest distance relative to the tensor's norm (0.0 if all
        are equal) with its limit; the keys beyond the limit with their distances, largest first.
    """
    digests = all_gather_arrays(
        comm, {key: digest_array(array) for key, array in copies.arrays.items()}
    )
    whole = hashlib.sha256()
    for rank, named in enumerate(digests):
        for key in sorted(named):
            whole.update(f"{rank} {key} {named[key].tobytes().hex()}\n".encode())
    chosen = range(comm.size) if copies.ranks is None else copies.ranks
    holders: dict[str, list[int]] = {}
    for rank in chosen:
        for key in digests[rank]:
            holders.setdefault(key, []).append(rank)
    unequal = {
        key: ranks
        for key, ranks in holders.items()
        if len({digests[rank][key].tobytes() for rank in ranks}) > 1
    }
    kinds = [array.dtype for array in copies.arrays.values()]
    eps = max((float(np.finfo(k).eps) for k in kinds if k.kind == "f"), default=2.0**-23)
    limit = min(1.0, ULPS * eps * math.sqrt(max(1, step)))
    if not unequal:
        return whole.hexdigest(), (0.0, limit), []
    own = {key: sketch_array(copies.arrays[key]) for key in unequal if key in copies.arrays}
    every, distances = all_gather_arrays(comm, own), {}
    for key, ranks in unequal.items():
        first, *others = (every[rank][key] for rank in ranks)
        size = max(float(first[0]), float(np.finfo(np.float32).tiny))
        gaps = [float(np.linalg.norm(x[1:] - first[1:])) / size for x in others]
        distances[key] = max(math.inf if math.isnan(gap) else gap for gap in gaps)
    limits = comm.all_gather(comm.tensor(np.array([limit])))
    limit = max(float(comm.numpy(x)[0]) for x in limits)  # a rank may have no weights
    far = sorted(distances.items(), key=lambda item: -item[1])
    beyond = [(key, d) for key, d in far if d > limit]
    return whole.hexdigest(), (far[0][1], limit), beyond


def digest_array(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the SHA-256 of an array's bytes as 32 uint8; shape and dtype are not part of it."""
    raw = hashlib.sha256(np.ascontiguousarray(array).data).digest()
    return np.frombuffer(raw, np.uint8)


def sketch_array(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return a sketch of an array, float64: its norm, followed by one sum with random signs for
    each of at most `BLOCKS` blocks; the signs are the same in every call.

    The distance of two sketches estimates the distance of the arrays: the squared difference of
    each block's sum has the squared difference of the block's elements as its expectation.
    """
    flat = np.asarray(array, np.float64).ravel()
    signs = np.random.default_rng(0).integers(0, 2, len(flat)) * 2.0 - 1.0
    starts = np.linspace(0, len(flat), min(BLOCKS, len(flat)), endpoint=False).astype(np.int64)
    sums = np.add.reduceat(flat * signs, starts) if len(flat) else np.zeros(0)
    return np.concatenate([[np.linalg.norm(flat)], sums])
