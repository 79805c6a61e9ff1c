"""Split training on the ranks of any backend, and the same updates of the whole model in NumPy.

`train` runs on every rank (see `dualml.launch.ranks`) and writes its arrays to a file per rank.
`expected` returns the correct result: the float64 reference with the unsplit model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from conformance.backends import adapter_of, create, on_ranks
from conformance.covering import chosen_cases, runs_all_cases

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.layers import (
    Attention,
    Branch,
    Conv2d,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Merge,
    Position,
    ReLU,
    Rows,
    Tanh,
)
from dualml.algorithms.model.recompute import recompute_groups
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.streams import stream_indices
from dualml.algorithms.optim import LRSchedule, rule_from
from dualml.algorithms.precision import Precision
from dualml.backend import TrainingSpec
from dualml.backend.reference.training import NumpyTraining
from dualml.common.errors import Unsupported
from dualml.common.seeds import make_generator
from dualml.experiment.split import Split
from dualml.parallel.split.asynchronous_executor import executor_class
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.training import SplitTraining
from dualml.parallel.trainer import Trainer
from dualml.parallel.zero import Sharding
from dualml.parallel.zero.executor import make_executor

Arrays = dict[str, np.ndarray]
SAMPLES, PROBE, SEED, CLASSES = 24, 3, 5, 10
#: Seconds for all cases of a group; a compiling framework takes minutes, more on a busy machine.
LIMIT_S = 800.0
OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "adam": {"name": "adam", "lr": 0.01, "eps": 1e-3},
}


def _deep() -> ModelSpec:
    layers: list[Any] = []
    for i in range(1, 5):
        layers += [(f"fc{i}", Linear(12, 12)), (f"tanh{i}", Tanh())]
    return ModelSpec("deep", (12,), (*layers, ("out", Linear(12, CLASSES))))


def _lenet() -> ModelSpec:
    return ModelSpec(
        "small_lenet",
        (1, 8, 8),
        (
            ("conv1", Conv2d(1, 4, 3, padding=1)),
            ("relu1", ReLU()),
            ("pool1", MaxPool2d(2)),
            ("conv2", Conv2d(4, 8, 3)),
            ("relu2", ReLU()),
            ("flatten", Flatten()),
            ("fc1", Linear(32, 8)),
            ("relu3", ReLU()),
            ("fc2", Linear(8, CLASSES)),
        ),
    )


def _vit() -> ModelSpec:
    return ModelSpec(
        "small_vit",
        (1, 6, 5),
        (
            ("rows", Rows()),
            ("embed", Linear(5, 8)),
            ("position", Position(6, 8)),
            ("branch1", Branch()),
            ("ln1", LayerNorm(8)),
            ("qkv", Linear(8, 24)),
            ("attention", Attention(4)),
            ("proj", Linear(8, 8)),
            ("merge1", Merge()),
            ("branch2", Branch()),
            ("ln2", LayerNorm(8)),
            ("up", Linear(8, 16)),
            ("relu", ReLU()),
            ("down", Linear(16, 8, bias=False)),
            ("merge2", Merge()),
            ("ln3", LayerNorm(8)),
            ("pool", MeanPool()),
            ("head", Linear(8, CLASSES)),
        ),
    )


SPECS = {
    "deep": _deep(),
    "lenet": _lenet(),
    "vit": _vit(),
    "rnn": model("rnn_lm", words=24, length=6),
    "dropout": model("rnn_lm_dropout", words=24, length=6),
    "text": model("text_classifier", words=24, length=6, classes=CLASSES),
    "gpt": model("gpt", words=24, length=6, sizes={"width": 8, "blocks": 1, "dropout": 0.1}),
    "llama": model("gpt_llama", words=24, length=6, sizes={"width": 16, "blocks": 1}),
    "longer gpt": model(
        "gpt", words=24, length=12, sizes={"width": 8, "blocks": 2, "dropout": 0.1}
    ),
    "two gru": model(
        "rnn_lm",
        words=24,
        length=6,
        recurrent={"rnn_type": "gru", "layers": 2, "width": 8, "hidden": 8},
    ),
    "tied rnn": model(
        "rnn_lm_dropout",
        words=24,
        length=6,
        recurrent={
            "rnn_type": "relu",
            "layers": 2,
            "width": 8,
            "hidden": 8,
            "tied": True,
            "init_range": 0.1,
        },
    ),
    "stateful": model(
        "rnn_lm_dropout",
        words=24,
        length=6,
        recurrent={"layers": 2, "width": 8, "hidden": 8, "stateful": True},
    ),
    "three heads": model("gpt", words=24, length=6, sizes={"width": 12, "blocks": 1, "heads": 3}),
    "longer llama": model("gpt_llama", words=24, length=16, sizes={"width": 16, "blocks": 1}),
}


def spec_of(case: dict[str, Any]) -> ModelSpec:
    return SPECS[case["model"]]


def data(spec: ModelSpec, enlarged: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    draw = make_generator(0, "conformance", "split", spec.name)
    if spec.takes_tokens:
        tokens = draw.integers(0, 24, (SAMPLES, *spec.input_shape)).astype(np.int32)
        if spec.needs_padding_mask:  # sentences of several lengths
            tokens[np.arange(tokens.shape[1]) > np.arange(SAMPLES)[:, None] % 6] = 0
            return tokens, draw.integers(0, CLASSES, SAMPLES)
        return tokens, draw.integers(0, 24, tokens.shape)
    x = enlarged * draw.normal(size=(SAMPLES, *spec.input_shape)).astype(np.float32)
    return x, draw.integers(0, CLASSES, SAMPLES)


def batches(case: dict[str, Any]) -> list[np.ndarray]:
    """Return one batch of each of the case's sizes; the updates cycle through them."""
    if spec_of(case).stateful:
        order = streams_of(case)
        return [row.astype(np.int64) for row in order[: len(case["sizes"])]]
    draw = make_generator(0, "conformance", "split batches")
    return [draw.permutation(SAMPLES)[:size] for size in case["sizes"]]


def streams_of(case: dict[str, Any]) -> np.ndarray | None:
    """Return the streams of a stateful model, whose batches all have the first one's size."""
    return stream_indices(SAMPLES, case["sizes"][0]) if spec_of(case).stateful else None


def recipe_of(case: dict[str, Any]) -> TrainingSpec:
    """Return the training configuration of a case. Optional keys: ``precision`` (dtype and loss
    scale), ``schedule``, ``recompute``, and ``enlarged`` (factor on the samples)."""
    spec = spec_of(case)
    x, y = data(spec, case.get("enlarged", 1.0))
    return TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 1),
        rule=rule_from(OPTIMIZERS[case["optimizer"]]),
        loss=case["loss"],
        x=x,
        y=y,
        updates=len(case["sizes"]),
        seed=SEED,
        precision=Precision(*case.get("precision", ())),
        schedule=LRSchedule(**case.get("rates", {})),
        recompute=recompute_groups(spec, case.get("recompute", "none")),
        streams=streams_of(case),
    )


def cases_of(
    name: str,
    cases: Mapping[str, dict[str, Any]],
    few: Mapping[str, list[int]],
    later: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return the cases of a backend, title → case.

    The reference and backends from elsewhere run all, PyTorch those that cover every pair of
    settings. A framework that compiles every stage runs those of ``few``, with the batch sizes
    given there, that cover every setting; those of ``later`` with ``--slow`` alone.
    """
    if adapter_of(name).COMPILES:
        chosen = chosen_cases({t: {**cases[t], "sizes": sizes} for t, sizes in few.items()}, 1)
        return {t: case for t, case in chosen.items() if runs_all_cases() or t not in later}
    return chosen_cases(cases) if name == "torch" else dict(cases)


def make_training(comm: Any, backend: Any, case: dict[str, Any], plan: SplitPlan) -> SplitTraining:
    """Return this rank's part of the model, ready to train."""
    recipe = recipe_of(case)
    executor: Any = executor_class("synchronous", plan.engine)
    if "zero" in case:  # among ranks with the same parameters
        sharding = Sharding(1, **case["zero"])
        executor = partial(make_executor, recipe=recipe, sharding=sharding)
    training = SplitTraining(backend, plan, comm, recipe, executor)
    training.executor.seed = SEED
    training.load(recipe.weights, recipe.initial_state(), 0)
    return training


def collect_results(training: Any, case: dict[str, Any], read: Any) -> Arrays:
    """Run the case on any `Training`, or by any `Trainer`, and return name → array, losses
    included."""
    told: Arrays = {}
    model = training.model if isinstance(training, Trainer) else training
    own = batches(case)
    trace = training.trace(own[0], own[0][:PROBE])
    told |= {f"activation {name}": a for name, a in trace.activations.items()}
    told |= {f"gradient {name}": g for name, g in trace.gradients.items()}
    losses = [training.step(batch, t) for t, batch in enumerate(own, start=1)]
    told["losses"] = np.array([trace.loss, *read(losses)])
    x, y = data(spec_of(case))
    loss, predicted = model.evaluate(x[:PROBE], y[:PROBE])
    told["evaluation"], told["predicted"] = np.array([loss]), predicted
    told |= {f"weight {name}": w for name, w in model.weights().items()}
    for slot, named in training.state().items():
        told |= {f"state {slot} {name}": a for name, a in named.items()}
    model.transform_weights(lambda arrays: {name: 2 * a for name, a in arrays.items()})
    told |= {f"moved {name}": w for name, w in model.weights().items()}
    return told


def saved_bytes(training: SplitTraining, case: dict[str, Any]) -> int:
    """Return the most bytes that this rank saves for backward passes in one update."""
    training.count_saved_bytes(True)
    training.step(batches(case)[0], len(case["sizes"]))
    training.count_saved_bytes(False)
    return training.executor.max_saved_bytes


def count_kept(comm: Any, cases: list[dict[str, Any]]) -> list[int]:
    """Return the bytes saved for backward passes on this rank, per case."""
    backend, found = create(comm.backend), []
    for case in cases:
        plan = Split(**case["split"]).plan(spec_of(case), comm.size)
        found.append(saved_bytes(make_training(comm, backend, case, plan), case))
    return found


def train(comm: Any, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Run every case: write arrays to ``folder``, and return the other results per case."""
    backend = create(comm.backend)
    told = []
    for number, case in enumerate(argument["cases"]):
        plan = Split(**case["split"]).plan(spec_of(case), comm.size)
        try:
            training = make_training(comm, backend, case, plan)
        except Unsupported as reason:
            told.append({"unsupported": str(reason)})
            continue
        found = collect_results(training, case, training.materialize_losses)
        np.savez(Path(argument["folder"]) / f"case{number}.rank{comm.rank}.npz", **found)
        row = plan.pipeline_row(comm.rank)
        own = sum(
            int(np.prod(piece.local_shape)) for piece in plan.rank_stages(comm.rank)[1].values()
        )
        held = saved_bytes(training, case) if case.get("recompute") else 0
        told.append(
            {
                "live": training.executor.max_in_flight,
                "bound": plan.grid.live(row),
                "own": own,
                "state": training.measure_memory().state if "zero" in case else None,
                "held": held,
            }
        )
        comm.barrier()
    return told


def on_group(
    name: str, ranks: int, train: str, cases: dict[str, Any], folder: Path, timeout: float
) -> dict[str, list[dict[str, Any]]]:
    """Return title → results of each rank of one group, arrays included."""
    argument = {"cases": list(cases.values()), "folder": str(folder)}
    answers = on_ranks(name, ranks, train, argument, timeout=timeout, limit=LIMIT_S)

    def rank_answer(rank: int, i: int) -> dict[str, Any]:
        answer: dict[str, Any] = answers[rank][i]
        if "unsupported" in answer:
            return answer
        return {**answer, "arrays": dict(np.load(folder / f"case{i}.rank{rank}.npz"))}

    return {title: [rank_answer(r, i) for r in range(ranks)] for i, title in enumerate(cases)}


def expected(case: dict[str, Any]) -> Arrays:
    """Return the results of the whole model, trained by the reference without recomputation."""
    return collect_results(NumpyTraining(replace(recipe_of(case), recompute=())), case, np.array)
