"""Training methods make the same updates as the reference, whichever engine runs the loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
from conformance import methods
from conformance.backends import ability, create, env_list, on_ranks, require, tested_backends

from dualml.backend import backends
from dualml.experiment.methods import METHODS
from dualml.experiment.methods.engine import EngineSupport

# The first test of a group waits for every method.
pytestmark = pytest.mark.timeout(900)

#: Relative rounding error of sums of some hundred numbers.
EXACT = 2e-5
#: Tolerance of the first loss in low precision, in units of its last place; later updates may be
#: skipped.
LOWER = {"bf16": 4 * 2.0**-8, "fp16": 4 * 2.0**-11}
#: PyTorch methods that use DistributedDataParallel, whose buckets copy all gradients.
DDP = (
    "ddp",
    "ddp_bf16",
    "ddp_fp16",
    "accumulate",
    "zero_optimizer",
    "accelerate",
    "accelerate_loader",
    "accelerate_metrics",
    "accelerate_tests_all",
)
#: DeepSpeed methods that pad every tensor.
STAGE_3 = ("deepspeed_zero3", "deepspeed_offload_param", "deepspeed_nvme")
CASES = [(name, n) for name in tested_backends() for n in (1, 2)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def ranks(request: pytest.FixtureRequest) -> tuple[str, list[dict[str, Any]]]:
    """Return the backend, and for each rank method → its result."""
    backend, n = request.param
    require(backends()[backend].framework)
    ability(create(backend), EngineSupport)
    argument = {"backend": backend, "methods": methods.names(backend, n)}
    if n == 1:
        return backend, [methods.check(None, argument)]
    each = on_ranks(backend, n, "conformance.methods:check", argument, timeout=90, limit=800)
    assert [set(rank) for rank in each] == [set(argument["methods"])] * n
    return backend, each


@pytest.fixture(scope="module")
def first_rank(ranks: tuple[str, list[dict[str, Any]]]) -> tuple[str, int, dict[str, Any]]:
    """Return the backend, the number of ranks, and the first rank's results."""
    backend, each = ranks
    return backend, len(each), each[0]


def test_each_makes_the_referees_updates(first_rank: tuple[str, int, dict[str, Any]]) -> None:
    backend, _, ran = first_rank
    assert ran
    for name, told in ran.items():
        if "unsupported" in told:
            continue
        precision = METHODS[backend][name].precision
        for run in told["runs"]:
            assert run["finite"], name
            if precision == "fp32":
                assert run["losses"] < EXACT, (name, run)
                assert run["weights"] < EXACT, (name, run)
            else:
                assert run["first"] < LOWER[precision], (name, run)
            assert run["moved"] > 0.05, name


def test_only_engines_and_devices_that_are_missing_are_excused(
    first_rank: tuple[str, int, dict[str, Any]],
) -> None:
    backend, n, ran = first_rank
    for name, told in ran.items():
        if "unsupported" in told:
            package = METHODS[backend][name].package
            missing = package and package not in env_list("DUALML_REQUIRE")
            excused = missing or "GPU" in told["unsupported"]
            assert excused, (name, told)
        else:
            assert told["processes"] == n, name


def test_each_holds_what_the_table_says(ranks: tuple[str, list[dict[str, Any]]]) -> None:
    """Memory matches the table to the byte. Engines that update copies of the weights pad their
    parts to an even number of elements; DeepSpeed stage 3 pads every tensor."""
    backend, each = ranks
    sizes, n = [*map(math.prod, methods.SPEC.parameters().values())], len(each)
    psi = sum(sizes)
    for name, told in each[0].items():
        if "unsupported" in told:
            continue
        info, memories = METHODS[backend][name], [rank[name]["memory"] for rank in each]
        padded = -(-psi // (2 * n)) * 2 * n if info.masters else psi
        if name in STAGE_3:
            padded = sum(-(-size // n) * n for size in sizes)
        slots = {"weights": 1, "gradients": 1, "state": len(methods.RULE.state_keys) + info.masters}
        for part, copies in slots.items():
            counts = [memory[part] for memory in memories]
            if part in info.shards:
                assert sum(counts) == 4 * copies * padded, (name, part)
                assert max(counts) < 4 * copies * psi, (name, part)
            else:
                size = info.weight_bytes if part == "weights" and info.weight_bytes else 4
                assert counts == [size * copies * psi] * n, (name, part)


def test_what_ranks_combine_is_counted_besides(ranks: tuple[str, list[dict[str, Any]]]) -> None:
    backend, each = ranks
    one = 4 * sum(map(math.prod, methods.SPEC.parameters().values()))
    for name, told in each[0].items():
        if "unsupported" in told:
            continue
        buckets = [rank[name]["memory"]["buckets"] for rank in each]
        if backend == "torch" and name in DDP:
            assert buckets == [one * (len(each) > 1)] * len(each), name
        elif name == "fsdp":
            assert all(2 * one <= n < 2.1 * one for n in buckets), name
        elif name == "fsdp_layers":
            assert all(0 < n < 1.5 * one for n in buckets), name
        elif name == "fsdp_layers_kept":
            assert all(one <= n < 2 * one for n in buckets), name
        elif name == "deepspeed_pipeline":
            pass  # nothing but messages of activations
        elif name.startswith("deepspeed"):
            assert min(buckets) >= (METHODS[backend][name].weight_bytes or 4) * 5 * 10**8
        else:
            assert not any(buckets), name


def test_micro_batches_keep_the_activations_of_one(
    ranks: tuple[str, list[dict[str, Any]]],
) -> None:
    """Four chunks of two samples make the same update as eight samples at once."""
    for rank in ranks[1]:
        if "ddp" in rank and "accumulate" in rank:
            whole, part = (rank[name]["memory"]["activations"] for name in ("ddp", "accumulate"))
            assert 0.2 < part / whole < 0.3
