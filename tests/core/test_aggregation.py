"""The aggregation strategies as data: their messages, and the helpers around them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.algorithms.communicator.parts import part_lengths, part_start
from dualml.algorithms.communicator.rendezvous import ranks_per_machine
from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import CommunicationError, TrialError, UserError
from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import inexactness_reason, single_process_arm
from dualml.experiment.store.times import TIMES
from dualml.parallel.aggregation import STRATEGIES, CollectiveSchedule, Ring, Transfer, strategy
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.compress import TopK, sum_fp16
from dualml.parallel.aggregation.layers import cut_layers, layer_sizes
from dualml.parallel.aggregation.schedule import count_step_groups
from dualml.parallel.aggregation.staleness import staleness_stats
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.aggregation.times import Times, communication_share, split_times

COUNTED = [name for name, kind in STRATEGIES.items() if kind.is_point_to_point]


def carried_out(schedule: CollectiveSchedule, vectors: np.ndarray) -> np.ndarray:
    """Run a schedule literally on an array (ranks, length): all sends of a step happen before any
    is used."""
    state = vectors.astype(float)
    for step in schedule.steps:
        sent = [(t, state[t.source, slice(*schedule.span(t, state.shape[1]))].copy()) for t in step]
        for t, part in sent:
            place = slice(*schedule.span(t, state.shape[1]))
            state[t.target, place] = part + (state[t.target, place] if t.op == "add" else 0)
    return state


def check(schedule: CollectiveSchedule) -> None:
    """Raise `ValueError` for an impossible message: an unknown rank or chunk, a rank that sends to
    itself, or two ranks that write one chunk of a rank in one step."""
    for number, step in enumerate(schedule.steps, start=1):
        places = [
            (t.target, chunk) for t in step if t.op == "put" for chunk in range(t.first, t.last + 1)
        ]
        for t in step:
            ranks = 0 <= t.source < schedule.ranks and 0 <= t.target < schedule.ranks
            if not ranks or t.source == t.target or not 0 <= t.first <= t.last < schedule.chunks:
                raise ValueError(f"step {number}: {t} cannot be in {schedule.ranks} ranks")
        if len(set(places)) != len(places):
            raise ValueError(f"step {number}: two chunks are put into one place")


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([n for n, k in STRATEGIES.items() if k.exact]),
    n=st.integers(1, 17),
    length=st.integers(0, 40),
)
def test_every_schedule_leaves_the_sum_on_every_rank(name: str, n: int, length: int) -> None:
    schedule = strategy(name).schedule(n)
    check(schedule)
    vectors = np.arange(n * length, dtype=float).reshape(n, length)
    state = carried_out(schedule, vectors)
    if name == "all_gather":  # its one step is shown as messages of the vectors themselves
        return
    np.testing.assert_allclose(state, np.tile(vectors.sum(axis=0), (n, 1)))


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8), n=st.integers(2, 9))
def test_a_ring_of_whole_layers(sizes: list[int], n: int) -> None:
    """A ring over whole layers computes the sum, cuts no layer, and matches its closed forms."""
    ring, length = Ring(tuple(sizes)), sum(sizes)
    schedule = ring.schedule(n)
    check(schedule)
    ends = {0, *np.cumsum(sizes).tolist()}
    assert set(schedule.bounds) <= ends
    assert len(schedule.bounds) == n + 1
    vectors = np.arange(n * length, dtype=float).reshape(n, length)
    np.testing.assert_allclose(carried_out(schedule, vectors), np.tile(vectors.sum(axis=0), (n, 1)))
    sent = [schedule.sent_volume(rank, length) for rank in range(n)]
    received = [schedule.received_volume(rank, length) for rank in range(n)]
    assert ring.max_rank_volume(n, length) == max(sent) == max(received)
    counted, closed = count_step_groups(schedule, length), ring.step_groups(n, length)
    as_seconds = [s.times * (s.messages + s.bytes) for s in closed]
    assert sum(as_seconds) == sum(s.messages + s.bytes for s in counted)
    assert sum(s.times * s.total for s in closed) == sum(s.total for s in counted)
    assert sum(s.times * s.added for s in closed) == sum(s.added for s in counted)


def test_no_other_cut_has_a_smaller_largest_chunk() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        sizes, n = draw.integers(0, 20, draw.integers(1, 8)).tolist(), int(draw.integers(2, 5))
        ends = [0, *np.cumsum(sizes).tolist()]
        cuts = combinations_with_replacement(ends, n - 1)
        best = min(max(b - a for a, b in pairwise([0, *cut, ends[-1]])) for cut in cuts)
        assert max(b - a for a, b in pairwise(cut_layers(sizes, n))) == best


def test_layers_of_lenet_on_a_ring_of_two_and_four() -> None:
    from dualml.algorithms.model import model

    shapes = model("lenet").parameters()
    sizes = layer_sizes(list(shapes), shapes)
    assert sum(sizes) == sum(math.prod(shape) for shape in shapes.values())
    assert len(sizes) == 4
    for n in (2, 4):
        largest = max(b - a for a, b in pairwise(cut_layers(sizes, n)))
        assert largest > sum(sizes) / n  # what the equal cut would send at a time
        assert largest >= max(sizes)


def test_chunks_are_cut_for_one_length_alone() -> None:
    with pytest.raises(CommunicationError, match="chunks of 8 elements cannot cut a vector of 9"):
        Ring((3, 5)).schedule(2).sent_volume(0, 9)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"reduce": "median"}, "strategy = all_gather"),
        ({"reduce": "max", "strategy": "ring"}, "strategy = all_reduce or all_gather"),
        ({"reduce": "max", "strategy": "native"}, "no sum, which native makes"),
        ({"reduce": "max", "compress": "fp16"}, "leave out compress = fp16"),
        ({"reduce": "max", "overlap": True}, "leave out reduce = max, or overlap"),
        ({"cut": "layers"}, "all_reduce has none: set strategy = ring"),
        ({"cut": "layers", "strategy": "tree"}, "tree has none"),
    ],
)
def test_reductions_and_cuts_that_cannot_be(keys: dict, words: str) -> None:
    from dualml.parallel.aggregation.settings import Aggregation

    with pytest.raises((UserError, ValueError), match=words):
        Aggregation(**keys)


@pytest.mark.parametrize(("n", "k"), [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4), (12, 3)])
def test_two_levels_add_up_on_any_nodes(n: int, k: int) -> None:
    schedule = strategy("hierarchical").for_nodes(k).schedule(n)
    check(schedule)
    vectors = np.arange(n * 25, dtype=float).reshape(n, 25)
    np.testing.assert_allclose(carried_out(schedule, vectors), np.tile(vectors.sum(axis=0), (n, 1)))
    across = [t for step in schedule.steps for t in step if t.source // k != t.target // k]
    leaving = sum(b - a for a, b in (schedule.span(t, n * 10) for t in across if t.source < k))
    assert leaving == 2 * (n // k - 1) * n * 10 // (n // k)


@pytest.mark.parametrize(
    ("machines", "k"),
    [
        ("aabb", 2),
        ("aaaa", 4),
        ("abcd", 1),
        ("abab", 0),
        ("aab", 0),
        ("aabbaa", 0),
        ("a", 1),
        ("abb", 0),
        ("aabbb", 0),
    ],
)
def test_ranks_of_a_machine_are_a_node_where_all_have_as_many(machines: str, k: int) -> None:
    assert ranks_per_machine(list(machines)) == k


def test_a_broken_schedule_is_seen() -> None:
    whole = Ring().schedule(4)
    short = replace(whole, steps=whole.steps[:-1])
    vectors = np.arange(16.0).reshape(4, 4)
    assert not np.allclose(carried_out(short, vectors), vectors.sum(axis=0))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("length", [0, 1, 7, 64, 1001])
def test_the_ring_sends_what_the_paper_says(n: int, length: int) -> None:
    """2 (n − 1) messages and, where n divides the length, 2 (n − 1) / n · S bytes per rank."""
    for rank in range(n):
        messages, elements = Ring().schedule(n).sent_volume(rank, length)
        assert messages == 2 * (n - 1)
        assert abs(elements - 2 * (n - 1) / n * length) <= 2 * (n - 1)
        if length % n == 0:
            assert elements * n == 2 * (n - 1) * length


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("name", COUNTED)
def test_what_ranks_count_is_what_the_schedule_says(name: str, n: int) -> None:
    schedule, length = strategy(name).schedule(n), 101

    def work(comm):
        strategy(name).sum(comm, np.ones(length))
        return comm.traffic

    for rank, traffic in enumerate(run_threads(n, work)):
        assert (traffic.sent, traffic.bytes_sent // 8) == schedule.sent_volume(rank, length)
        assert (traffic.received, traffic.bytes_received // 8) == schedule.received_volume(
            rank, length
        )
        assert traffic.calls == 0


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_halving_doubling_has_the_bytes_of_the_ring_in_logarithmic_steps(n: int) -> None:
    messages, elements = strategy("halving_doubling").schedule(n).sent_volume(0, 16 * n)
    assert messages == 2 * math.log2(n)
    assert elements == Ring().schedule(n).sent_volume(0, 16 * n)[1]


def test_the_grid_says_who_sends_what_to_whom() -> None:
    assert Ring().schedule(3).grid().splitlines() == [
        "rank 0 | 0→1+  2→1+  1→1=  0→1=",
        "rank 1 | 1→2+  0→2+  2→2=  1→2=",
        "rank 2 | 2→0+  1→0+  0→0=  2→0=",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        Transfer(0, 0, 0, 0, "add"),
        Transfer(0, 2, 0, 0, "add"),
        Transfer(0, 1, 0, 1, "put"),
    ],
)
def test_impossible_messages_are_refused(wrong: Transfer) -> None:
    with pytest.raises(ValueError, match="step 1"):
        check(CollectiveSchedule(2, 1, ((wrong,),)))


def test_two_chunks_in_one_place_are_refused() -> None:
    step = (Transfer(0, 2, 0, 0, "put"), Transfer(1, 2, 0, 0, "put"))
    with pytest.raises(ValueError, match="one place"):
        check(CollectiveSchedule(3, 1, (step,)))


def test_two_messages_between_two_ranks_in_one_step_are_refused() -> None:
    """Both neighbours on a ring of two ranks are one rank, which an exchange sends one message."""
    to_both = [Transfer(0, d % 2, chunk, chunk, "add") for chunk, d in enumerate((1, -1))]
    with pytest.raises(UserError, match=r"step 2: rank 0 sends rank 1 2 messages; .* at most one"):
        CollectiveSchedule(2, 2, ((Transfer(1, 0, 0, 1, "add"),), tuple(to_both)))
    one_after_the_other = tuple((t,) for t in to_both)
    assert len(CollectiveSchedule(2, 2, one_after_the_other).steps) == 2


def test_an_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'ring'"):
        strategy("rong")


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(0, 800))
def test_buckets_hold_every_tensor_once_and_keep_to_their_size(
    lengths: list[int], limit: int
) -> None:
    shapes = {f"t{i}": (length,) for i, length in enumerate(lengths)}
    buckets = bucket_layout(shapes, limit)
    assert [name for bucket in buckets for name in bucket] == list(shapes)
    for bucket in buckets:
        size = sum(4 * shapes[name][0] for name in bucket)
        assert size <= limit or len(bucket) == 1
    for one, other in pairwise(buckets):  # none could have held more
        first = 4 * shapes[other[0]][0]
        assert not limit or sum(4 * shapes[name][0] for name in one) + first > limit


@given(st.integers(0, 1000), st.integers(1, 17))
def test_parts_begin_where_the_ones_before_end(length: int, n: int) -> None:
    sizes = part_lengths(length, n)
    assert [part_start(length, n, part) for part in range(n + 1)] == [
        sum(sizes[:part]) for part in range(n + 1)
    ]


@given(st.integers(0, 1000), st.integers(1, 17))
def test_parts_are_nearly_equal_and_complete(length: int, n: int) -> None:
    sizes = part_lengths(length, n)
    assert sum(sizes) == length
    assert max(sizes) - min(sizes) <= 1
    assert sizes == [len(p) for p in np.array_split(np.arange(length), n)]


def test_top_k_loses_nothing_it_only_delays() -> None:
    """Top-k only delays: what was sent plus what is kept back equals the total gradient."""
    draw = np.random.default_rng(0)
    gradients = draw.normal(size=(5, 3, 40))  # steps, ranks, entries

    def work(comm):
        top, sent = TopK(0.1), []
        for step in range(5):
            sent.append(top.sum(comm, gradients[step, comm.rank].copy(), "b"))
        return np.sum(sent, axis=0), top.residuals["b"], [np.count_nonzero(s) for s in sent]

    found = run_threads(3, work)
    total = found[0][0] + sum(kept for _, kept, _ in found)
    np.testing.assert_allclose(total, gradients.sum(axis=(0, 1)), rtol=1e-12)
    assert max(found[0][2]) <= 3 * 4  # four of forty entries from each of three ranks


def test_top_k_prefers_the_first_of_equals() -> None:
    [sent] = run_threads(1, lambda comm: TopK(0.5).sum(comm, np.array([1.0, -1, 1, 1]), "b"))
    assert sent.tolist() == [1, -1, 0, 0]


def test_half_precision_says_what_overflows() -> None:
    with pytest.raises(TrialError, match="65504"):
        run_threads(2, lambda comm: sum_fp16(Ring(), comm, np.full(4, 40000.0)))


def test_a_slow_node_is_slow_only_where_and_when_it_is_said() -> None:
    slow = Straggler(rank=1, compute=4, latency_s=0.01, bandwidth_bytes_per_s=1e6, since=5)
    assert slow.compute_delay(1, 0.2, 5, seed=0) == pytest.approx(0.6)
    assert slow.compute_delay(1, 0.2, 4, seed=0) == slow.compute_delay(0, 0.2, 5, seed=0) == 0
    assert slow.transfer_delay(1, 2000, 5000, 5) == pytest.approx(0.015)
    # Its 2 (n − 1) steps of the ring, each with the latency and a fourth of 4000 bytes.
    delay = slow.schedule_delay(Ring().schedule(4), 1, 4000, 5)
    assert delay == pytest.approx(6 * (0.01 + 0.001))
    assert slow.schedule_delay(Ring().schedule(4), 0, 4000, 5) == 0


def test_a_slow_link_is_slow_in_the_aggregation_only_and_not_in_the_next_trial() -> None:
    """A slow link slows the aggregation only, and not other messages or the next trial of the same
    ranks."""
    from conformance import parallel

    from dualml.algorithms.optim import rule_from
    from dualml.backend import TrainingSpec, backends
    from dualml.parallel.aggregation.asynchronous import AsyncParameterServer
    from dualml.parallel.aggregation.buckets import bucket_layout
    from dualml.parallel.aggregation.settings import Aggregation

    asked = Aggregation(strategy="parameter_server_async", arrival="free")
    weights = parallel.initial_weights(parallel.SPEC, 0)
    rule = rule_from({"name": "sgd", "lr": 0.1})

    def work(comm):
        backend = backends()["numpy"].create("cpu", 1)
        x, y = parallel.data()
        recipe = TrainingSpec(spec=parallel.SPEC, weights=weights, rule=rule, x=x, y=y, updates=8)
        training = backend.training(recipe)
        pieces = training.make_buckets(bucket_layout(parallel.SPEC.parameters()))
        slow = Straggler(rank=1, latency_s=0.05)
        late = AsyncParameterServer(backend, training, pieces, comm, asked, slow)
        seen = []
        exchange = comm._exchange
        comm._exchange = lambda *sides: seen.append(comm.delay is not None) or exchange(*sides)
        late.load(weights, rule.init(parallel.start()), 0)
        lazy = [late.step(np.arange(8), step) for step in (1, 2)]
        served = len(seen)
        late.mean_losses(lazy)
        return comm.rank, seen[:served], comm.delay

    for rank, during, after in run_threads(2, work):
        assert after is None
        assert during or rank == 0  # the server may leave all of it to its catching up
        assert all(during) if rank == 1 else True


def test_jitter_is_drawn_from_the_seed() -> None:
    slow = Straggler(rank=0, jitter_s=0.01)
    drawn = [slow.compute_delay(0, 1.0, step, seed=3) for step in range(1, 400)]
    assert drawn == [slow.compute_delay(0, 1.0, step, seed=3) for step in range(1, 400)]
    assert np.mean(drawn) == pytest.approx(0.01, rel=0.2)


def test_time_is_split_into_computing_waiting_and_transferring(tmp_path: Path) -> None:
    for rank, arrive in enumerate((1.0, 3.0)):
        times = Times()
        times.add(0.0, arrive, 4.0, 4.5)
        TIMES.write(tmp_path, rank, times.columns())
    ranks = TIMES.read_all(tmp_path, 2)
    first, second = split_times(ranks)
    assert first == {
        "compute_s": 1.5,
        "update_s": 0.5,
        "wait_s": 2.0,
        "transfer_s": 1.0,
        "step_s": 4.5,
    }
    assert second == {
        "compute_s": 3.5,
        "update_s": 0.5,
        "wait_s": 0.0,
        "transfer_s": 1.0,
        "step_s": 4.5,
    }
    assert communication_share([first, second]) == pytest.approx(4 / 9)
    alone = split_times(ranks, peers=[[0], [1]])  # who waits for nobody does not wait
    assert [told["wait_s"] for told in alone] == [0, 0]


def test_times_that_are_none_are_one_line(tmp_path: Path) -> None:
    TIMES.path(tmp_path, 0).write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"rank0\.times\.npz: not readable"):
        TIMES.read(tmp_path, 0)


def test_staleness_counts_every_rank() -> None:
    told = staleness_stats([(1, 0, 0), (1, 1, 2), (2, 1, 4)], 3)
    assert told == {"mean": 2.0, "max": 4, "ranks": [0.0, 3.0, 0.0]}


def arm(**more: object) -> Arm:
    return make_arm(**{"optimizer": {"name": "sgd", "lr": 0.1}, "world_size": 4, **more})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, None),
        ({"batch_size": 50}, None),
        ({"aggregation": {"of": "parameters"}}, None),
        ({"aggregation": {"of": "parameters", "every": 2}}, "local_updates"),
        (
            {
                "aggregation": {"of": "parameters"},
                "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
            },
            "local_state",
        ),
        ({"aggregation": {"strategy": "neighbour", "of": "parameters"}}, "neighbours"),
        ({"aggregation": {"strategy": "parameter_server_async"}}, "asynchronous"),
        ({"aggregation": {"compress": "fp16"}}, "compressed"),
        ({"aggregation": {"reduce": "sum"}}, "sum"),
        ({"aggregation": {"reduce": "max"}}, "max"),
        (
            {
                "aggregation": {
                    "reduce": "median",
                    "strategy": "all_gather",
                    "of": "parameters",
                    "every": 4,
                }
            },
            "median",
        ),
        ({"aggregation": {"reduce": "sum", "of": "parameters", "every": 4}}, "sum"),
        ({"aggregation": {"strategy": "ring", "cut": "layers"}}, None),
        ({"aggregation": {"reduce": "mean"}}, None),
        ({"aggregation": {"reduce": "mean"}, "batch_size": 50}, "uneven"),
    ],
)
def test_which_arms_must_follow_a_single_worker(more: dict, why: str | None) -> None:
    assert inexactness_reason(arm(**more), 1600) == why


def test_a_mean_is_exact_only_if_the_last_batch_divides_too() -> None:
    mean = arm(aggregation={"reduce": "mean"}, batch_size=64)
    assert inexactness_reason(mean, 64 * 3 + 32) is None
    assert inexactness_reason(mean, 64 * 3 + 2) == "uneven"


def test_the_single_worker_of_an_arm_does_the_same() -> None:
    arms = {"other": arm(world_size=1, batch_size=10), "one": arm(world_size=1), "four": arm()}
    assert single_process_arm("four", ConfigDiff(arms)) == "one"
    assert single_process_arm("four", ConfigDiff({"four": arm(), "other": arms["other"]})) is None


def test_every_update_has_masks_of_its_own_also_on_ranks_that_leave_updating_to_a_server() -> None:
    from dualml.algorithms.model import initial_weights, model
    from dualml.algorithms.optim import rule_from
    from dualml.backend import TrainingSpec, backends
    from dualml.parallel.aggregation.asynchronous import AsyncParameterServer
    from dualml.parallel.aggregation.buckets import bucket_layout
    from dualml.parallel.aggregation.settings import Aggregation

    spec = model("rnn_lm_dropout", words=12, length=6)
    weights = initial_weights(spec, 0)
    rule = rule_from({"name": "sgd", "lr": 1e-30})  # the masks alone differ from update to update
    x = np.random.default_rng(0).integers(0, 12, (8, 7))

    asked = Aggregation(strategy="parameter_server_async")

    def work(comm):
        backend = backends()["numpy"].create("cpu", 1)
        text, labels = x[:, :-1].astype(np.int32), x[:, 1:].astype(np.int32)
        training = backend.training(
            TrainingSpec(spec=spec, weights=weights, rule=rule, x=text, y=labels, updates=12)
        )
        pieces = training.make_buckets(bucket_layout(spec.parameters()))
        seen, gradient = [], pieces.gradient
        pieces.gradient = lambda *given: seen.append(gradient(*given)) or seen[-1]
        served = AsyncParameterServer(backend, training, pieces, comm, asked)
        served.load(weights, rule.init({n: np.array(w, np.float64) for n, w in weights.items()}), 0)
        for step in (1, 2, 3):
            served.step(np.arange(8), step)
        return [float(loss) for loss, _ in seen]

    for losses in run_threads(2, work):
        assert len(set(losses)) == 3
