"""Pipeline schedules of the literature: ``owners`` (stage → rank) and ``m`` micro-batches give a
grid.

Sources: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
Parallelism", section 2.3; Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM", section 2.2 (1F1B with a flush, which is PipeDream-flush, and its
interleaved form); Zhuang et al. 2023, "On Optimizing the Communication of Model Parallelism",
section 4 (eager 1F1B).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dualml.common.errors import UserError
from dualml.common.registry import Registry
from dualml.parallel.split.order import dependencies, layout
from dualml.parallel.split.schedule import Action, Grid, backward, forward

Build = Callable[[Sequence[int], int], Grid]
#: Name → function of the owners (stage → rank) and the number of micro-batches → grid.
SCHEDULES: Registry[Build] = Registry("pipeline schedule", "dualml.parallel.split")


@SCHEDULES.register("naive", 10)
def naive(owners: Sequence[int], m: int) -> Grid:
    """Run each micro-batch all the way forward and backward before the next one, so that one stage
    is busy at a time. Any owners.

    Source: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
    Parallelism", figure 2b.
    """
    order: list[Action] = []
    for k in range(m):
        order += [forward(s, k) for s in range(len(owners))]
        order += [backward(s, k) for s in reversed(range(len(owners)))]
    return _grid_from_order(owners, m, order)


@SCHEDULES.register("gpipe", 20)
def gpipe(owners: Sequence[int], m: int) -> Grid:
    """Run all forward passes, then all backward passes, stage by stage. Any owners.

    The backward passes start with micro-batch 0, as PyTorch's do; the paper's figure starts with
    the last one, which takes the same ticks and holds as much.

    Source: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
    Parallelism", figure 2c.
    """
    order = [forward(s, k) for s in range(len(owners)) for k in range(m)]
    order += [backward(s, k) for s in reversed(range(len(owners))) for k in range(m)]
    return _grid_from_order(owners, m, order)


def _grid_from_order(owners: Sequence[int], m: int, order: Iterable[Action]) -> Grid:
    """Make the grid in which every rank runs its part of one global order of actions. There is no
    deadlock if each action comes after its dependencies."""
    _check(owners, m)
    programs: list[list[Action]] = [[] for _ in range(max(owners) + 1)]
    for action in order:
        programs[owners[action.stage]].append(action)
    return layout(programs, owners, m)


@SCHEDULES.register("1f1b", 30)
def one_f_one_b(owners: Sequence[int], m: int) -> Grid:
    """Run 1F1B: a rank goes backward as soon as it can, and forward only while fewer than S − s
    micro-batches are in flight in stage s. Any owners.

    With one stage per rank this is PipeDream-flush: S−s−1 forward passes, then one forward and one
    backward pass in turn, then the remaining backward passes. With several stages per rank the same
    rule holds in each stage: a rank with several possible actions takes the backward pass of the
    oldest micro-batch, else the forward pass of the latest stage. It never deadlocks: in the last
    stage that holds a micro-batch, the backward pass can always run.

    Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
    Using Megatron-LM", section 2.2.1.
    """
    return _greedy_grid(owners, m, [len(owners) - stage for stage in range(len(owners))])


@SCHEDULES.register("eager-1f1b", 40)
def eager(owners: Sequence[int], m: int) -> Grid:
    """Run eager 1F1B: `one_f_one_b` with up to 2 (S − s) − 1 micro-batches in flight in stage s.
    Any owners.

    With one stage per rank, the input of a stage's next forward pass arrives one round earlier than
    in 1F1B. The theoretical bubble is the same; messages, and passes that occasionally take longer,
    delay other ranks less, at the cost of more activations held.

    Source: Zhuang et al. 2023, "On Optimizing the Communication of Model Parallelism", section 4.
    """
    return _greedy_grid(
        owners, m, [_eager_bound(len(owners), stage) for stage in range(len(owners))]
    )


def _eager_bound(stages: int, stage: int) -> int:
    """Return how many micro-batches may be in flight in a stage under eager 1F1B."""
    return 2 * (stages - stage) - 1


def _greedy_grid(owners: Sequence[int], m: int, flight: Sequence[int]) -> Grid:
    """Schedule greedily: a rank goes backward as soon as it can, and forward only while fewer than
    ``flight[s]`` micro-batches are in flight in stage s."""
    _check(owners, m)
    stages = len(owners)
    done: dict[Action, int] = {}
    programs: list[list[Action]] = [[] for _ in range(max(owners) + 1)]
    ahead, back = [0] * stages, [0] * stages  # stage → next micro-batch of each kind

    def ready(action: Action, tick: int) -> bool:
        return all(done.get(need, tick) < tick for need in dependencies(action, stages))

    tick = 0
    while len(done) < 2 * stages * m:
        for rank, program in enumerate(programs):
            own = [s for s in range(stages) if owners[s] == rank]
            due = [backward(s, back[s]) for s in reversed(own) if back[s] < ahead[s]]
            due.sort(key=lambda a: a.micro)
            room = [s for s in reversed(own) if ahead[s] < m and ahead[s] - back[s] < flight[s]]
            due += [forward(s, ahead[s]) for s in room]
            action = next((a for a in due if ready(a, tick)), None)
            if action is not None:
                program.append(action)
                done[action] = tick
                (ahead if action.kind == "F" else back)[action.stage] += 1
        tick += 1
    return layout(programs, owners, m)


@SCHEDULES.register("interleaved", 50)
def interleaved(owners: Sequence[int], m: int) -> Grid:
    """Run 1F1B over v model chunks on each of p ranks, in the order of Megatron-LM: p micro-batches
    through one chunk, then through the next.

    Args:
        owners: 0 … p−1, repeated v times.
        m: a multiple of p; any number if v is 1, which is `one_f_one_b`.

    Raises:
        UserError: other owners, or another m; the message gives the nearest valid values.

    Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
    Using Megatron-LM", section 2.2.2.
    """
    _check(owners, m)
    p, v = _chunks(owners)
    if v == 1:
        return one_f_one_b(owners, m)
    if m % p:
        low, high = m // p * p, -(-m // p) * p
        remedy = f"{low} or {high}" if low else str(high)
        raise UserError(
            f"interleaved needs a multiple of {p} micro-batches, one for each of {p} ranks; "
            f"received {m}: use {remedy}"
        )
    total = v * m

    def nth(rank: int, k: int, kind: str) -> Action:
        chunk, micro = k % (p * v) // p, k // (p * v) * p + k % p
        if kind == "F":
            return forward(chunk * p + rank, micro)
        return backward((v - 1 - chunk) * p + rank, micro)

    programs = []
    for rank in range(p):
        warm = _warmup_passes(rank, p, v, total)
        program = [nth(rank, k, "F") for k in range(warm)]
        for k in range(total - warm):
            program += [nth(rank, warm + k, "F"), nth(rank, k, "B")]
        program += [nth(rank, k, "B") for k in range(total - warm, total)]
        programs.append(program)
    return layout(programs, owners, m)


def _warmup_passes(rank: int, p: int, v: int, total: int) -> int:
    """Return the number of forward passes that ``rank`` makes before its first backward pass in the
    interleaved schedule, at most ``total``, all of them."""
    return min(total, 2 * (p - rank - 1) + (v - 1) * p)


def _chunks(owners: Sequence[int]) -> tuple[int, int]:
    """Return p and v of owners 0 … p−1, repeated v times; raise `UserError` for other owners."""
    p = max(owners) + 1
    v = len(owners) // p
    if tuple(owners) != tuple(range(p)) * v:
        once = ", ".join(map(str, range(p))) if p < 5 else f"0 … {p - 1}"
        raise UserError(
            "interleaved assigns the stages to the ranks in turn, "
            f"as in owners {once}, {once}; received {', '.join(map(str, owners))}"
        )
    return p, v


def build(name: str, owners: Sequence[int], m: int) -> Grid:
    """Build a schedule by its name.

    Args:
        name: a key of `SCHEDULES`.
        owners: stage → rank.
        m: number of micro-batches.

    Raises:
        UserError: an unknown name, or owners or m that the schedule does not allow.
    """
    return SCHEDULES.find(name)(owners, m)


def live_bound(name: str, owners: Sequence[int], m: int, rank: int) -> int:
    """Return the largest number of activations that ``rank`` may hold at once under the schedule
    ``name``, over all its stages.

    The bound is one per stage (``naive``), m per stage (``gpipe``), S − s in stage s (``1f1b``, and
    ``interleaved`` with one stage per rank), 2 (S − s) − 1 (``eager-1f1b``), or the warm-up plus
    one (``interleaved``); never more than m per stage.

    Raises:
        UserError: an unknown name, or owners or m that the schedule does not allow.
    """
    SCHEDULES.find(name)
    _check(owners, m)
    own = [stage for stage, owner in enumerate(owners) if owner == rank]
    if name == "naive":
        return len(own)
    if name == "gpipe":
        return m * len(own)
    if name == "interleaved":
        p, v = _chunks(owners)
        if v > 1:
            return min(v * m, _warmup_passes(rank, p, v, v * m) + 1)
    if name == "eager-1f1b":
        return sum(min(m, _eager_bound(len(owners), stage)) for stage in own)
    return sum(min(m, len(owners) - stage) for stage in own)


def bubble(p: int, m: int, v: int = 1) -> float:
    """Return the theoretical idle share of a rank, (p−1) / (v·m + p−1), for equally long stages.

    The pipeline has ``p`` ranks with ``v`` chunks each and ``m`` micro-batches. Narayanan et al.
    2021, section 2.2, divide by the busy time instead: (p−1) / (v·m). The formula holds for
    `gpipe`, `one_f_one_b` and `eager` (v = 1), and for `interleaved` on p ranks with v chunks each.
    """
    return (p - 1) / (v * m + p - 1)


def _check(owners: Sequence[int], m: int) -> None:
    """Raise `UserError` unless every rank from 0 on has a stage and there is a micro-batch."""
    if not owners or set(owners) != set(range(max(owners) + 1)):
        raise UserError(
            "owners give every stage its rank, and every rank from 0 on a stage, as in (0, 1, 0); "
            f"received {tuple(owners)}"
        )
    if m < 1:
        raise UserError(f"a pipeline needs at least 1 micro-batch; received {m}")
