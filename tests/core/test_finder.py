"""The finder on scenes with a known fault on a known side."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import finder_cases as cases
import numpy as np
import pytest
from finder_cases import CASES, LATE, finding, finding_of_case
from test_parity import STEPS as TRACED
from test_parity import trajectory

from dualml.algorithms.communicator import FileStore
from dualml.algorithms.model.layers import GRU, LSTM, RNN, ReLU
from dualml.algorithms.model.recurrent import RecurrentLayer
from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.layers import PAIRS
from dualml.common.errors import TrialError
from dualml.common.words import load_messages
from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.manifest import TrialRecord
from dualml.experiment.store.replays import (
    START,
    STATES,
    ReplayRecord,
    flatten,
    read_replay,
    unflatten,
)
from dualml.parity.envelope import clip_to_plain, update_envelope
from dualml.parity.finder.causes.base import (
    Observation,
    fit_factor,
    relative_error,
    unexplained_share,
)
from dualml.parity.finder.causes.layers import alternatives, rational_tanh
from dualml.parity.finder.context import PHASES, LayerIO
from dualml.parity.finder.evaluation import MIN_EXPLAINED_SHARE
from dualml.parity.finder.find import numeric_failures
from dualml.parity.finder.host import GUESSES, ExperimentHost
from dualml.parity.finder.localise import largest_differences, rounding_envelope, same_data
from dualml.parity.finder.paragraph import paragraph
from dualml.parity.finder.replays import steps_to_replay
from dualml.parity.finder.search import JudgingBudget, read_searches, replay_all, search
from dualml.parity.hypothesis import Hypothesis
from dualml.parity.pairs import compare_trajectories
from dualml.parity.transforms import round_to_half
from dualml.runner.worker.guards import check_loaded
from dualml.runner.worker.remote import store_for
from dualml.runner.worker.replay import TrialReplay, replay_updates
from dualml.runner.worker.replay_main import reference_plan
from dualml.runner.worker.setup import RankResources
from dualml.runner.worker.trial import TrialRunner

pytestmark = pytest.mark.whole

#: Cases in which only some ranks are wrong.
LONE = {"alone": [1]}


@pytest.mark.parametrize("case", CASES)
def test_what_was_planted_is_found(case: str) -> None:
    _, _, phase, tensor, cause = CASES[case]
    told = finding_of_case(case)
    assert (told["status"], told["backend"], told["guilty"]) == ("found", "torch", ["torch"])
    assert (told["step"], told["phase"], told["causes"][0]["cause"]) == (
        LATE.get(case, 1),
        phase,
        cause,
    )
    assert told["causes"][0]["score"] >= MIN_EXPLAINED_SHARE
    assert tensor in (None, told["tensor"])
    assert told["ranks"] == LONE.get(case, list(range(told["world_size"])))
    assert told["tensor"] in told["tensors"]
    assert len(told["tensors"]) <= told["of_tensors"]


def test_every_phase_has_a_case() -> None:
    assert {phase for _, _, phase, _, _ in CASES.values()} == set(PHASES)


def test_details_are_told() -> None:
    assert finding_of_case("leaky")["causes"][0]["detail"] == {"slope": 0.2}
    assert finding_of_case("gates")["causes"][0]["detail"] == {"order": "igfo"}
    assert finding_of_case("frozen")["causes"][0]["detail"] == {"parameters": ["fc1.weight"]}
    assert "(fc1.weight)" in paragraph(finding_of_case("frozen"))
    assert finding_of_case("clipped")["causes"][0]["detail"]["norm"] == pytest.approx(0.5, rel=1e-4)
    assert finding_of_case("alone")["causes"][0]["detail"] == {"ranks": [1]}
    lost = finding_of_case("lost")["causes"][0]["detail"]
    assert (lost["ranks"], str(lost["weights"])) == ([1], "[0.0]")
    micro = finding_of_case("micro")["causes"][0]["detail"]
    assert (micro["micro-batches"], str(micro["weights"]), micro["usual"]) == ([2], "[0.0]", 1.0)
    assert finding_of_case("micro")["owners"] == [1]
    assert finding_of_case("lost")["collective"] == "all_reduce"


def test_a_tensor_that_does_not_move_is_no_multiple() -> None:
    causes = finding_of_case("idle")["causes"]
    assert causes[0]["detail"]["parameters"] == ["fc3.bias"]
    assert "scaled-tensors" not in {cause["cause"] for cause in causes}


def test_elements_are_told() -> None:
    told = finding_of_case("labels")
    first = told["elements"]["largest"][0]
    assert first["found"] == (first["expected"] + 1) % 10
    assert told["elements"]["share"] == 1
    assert finding_of_case("dropped")["elements"]["shape"] == [[7, 1, 28, 28], [8, 1, 28, 28]]


def test_nothing_planted_is_rounding() -> None:
    for arm in ("softmax", "rnn", "nodes"):
        told = finding(arm, {"torch": None, "mindspore": None})
        assert told["status"] == "rounding only"
        assert 0 < told["worst"]["ratio"] <= 10
        for lang in ("en", "zh"):
            assert f"{told['worst']['ratio']:.1f}" in paragraph(told, lang)


def test_what_nobody_knows_is_only_localised() -> None:
    told = finding("lenet", {"torch": cases.layer(ReLU, cases.noisy)})
    assert (told["status"], told["phase"], told["layer"]) == ("localised", "forward", "relu1")
    assert all(cause["score"] < MIN_EXPLAINED_SHARE for cause in told["causes"])
    assert "in the catalogue" in paragraph(told)


def test_what_is_not_finite_has_no_cause() -> None:
    lost = cases.gradient(lambda g, _: {n: np.nan * a for n, a in g.items()})
    told = finding("softmax", {"torch": lost})
    assert (told["status"], told["phase"]) == ("localised", "gradient")
    assert told["causes"] == []
    assert "off by inf (inf times" in (text := paragraph(told))
    assert "is nan, the rule gives" in text


def test_the_side_is_told() -> None:
    fault = CASES["nesterov"][1]
    one = finding("nesterov", {"torch": None, "mindspore": fault})
    assert (one["backend"], one["guilty"]) == ("mindspore", ["mindspore"])
    assert one["others"]["torch"] < 1e-5 < one["distance"]
    assert "torch agrees with the reference" in paragraph(one)
    two = finding("nesterov", {"torch": fault, "mindspore": fault})
    assert two["guilty"] == ["torch", "mindspore"]
    assert "so is mindspore" in paragraph(two)
    assert "mindspore 也偏离" in paragraph(two, "zh")


@pytest.mark.parametrize(
    ("ranks", "en", "zh"),
    [
        ([1], " on rank 1 of 3.", "（共 3 个 rank，出现在 rank 1）。"),
        ([0, 2], " on ranks 0, 2 of 3.", "（共 3 个 rank，出现在 rank 0、2）。"),
        ([0, 1, 2], " on all 3 ranks.", "（3 个 rank 全部如此）。"),
    ],
)
def test_ranks_are_told(ranks: list[int], en: str, zh: str) -> None:
    told = {**finding_of_case("alone"), "ranks": ranks, "world_size": 3}
    assert en in paragraph(told)
    assert zh in paragraph(told, "zh")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_paragraph_says_what_was_found(case: str, lang: str) -> None:
    told, cause = finding_of_case(case), CASES[case][4]
    text = paragraph(told, lang)
    for word in (CASES[case][0], "torch", str(told["step"])):
        assert word in text
    assert told["tensor"] in text or told["phase"] == "loss"
    assert load_messages(lang)[f"cause.{cause}.remedy"] in text
    assert all(
        part in text for part in re.split(r"{.*?}", load_messages(lang)[f"cause.{cause}.says"])
    )
    assert not re.search(r"[{}]|nan|inf\b", text)
    if told["world_size"] > 1:
        assert re.search(r"\branks?\b", text)
    prose = re.sub(r"`[^`]*`", "", text)
    if lang == "zh":
        assert not re.search(r"[a-z]{2,}[,;:]? [a-z]{2,}[,;:]? [a-z]{2,}", prose)
        assert "  " not in text
    else:
        assert not re.search(r"[\u3000-\u9fff\uff00-\uffef]", text)
        assert text.endswith(".")


def test_a_replay_that_failed_says_why() -> None:
    told = {"arm": "gd", "seed": 3, "a": "x", "b": "y", "status": "not replayed"}
    assert "no room." in (text := paragraph({**told, "reason": "no room."}))
    assert "gd, seed 3" in text
    assert "no room。" in paragraph({**told, "reason": "no room."}, "zh")


# --- every guess ----------------------------------------------------------------------------------

#: Arm → phases with hypotheses of its own.
OWN = {
    **dict.fromkeys(("nesterov", "rmsprop", "adagrad"), ("update", "state")),
    "softmax": ("data", "loss", "gradient", "update", "state"),
    "adamw": ("update",),
    "lenet": ("forward",),
    "vit": ("forward",),
    "rnn": ("data", "forward", "loss", "gradient"),
    "nodes": ("data", "loss", "gradient", "aggregation", "update"),
    "pipeline": ("loss", "gradient"),
}


def suspects(arm: str, change: Any) -> list[Observation]:
    """Return one observation for each phase and each layer, with everything changed on one side."""
    states, right = cases.referee(arm)
    ranks = [{key: change(a) for key, a in r.items()} for r in right.ranks]
    sides = {"numpy": right, "torch": ReplayRecord("torch", ranks, right.widths)}
    made = cases.scene_of(arm, states, sides)
    looks, named = [(2, r) for r in range(len(ranks))], {}
    for key in right.ranks[0]:
        _, phase, tensor = key.split("/", 2)
        if phase in OWN[arm]:
            named[phase, tensor if phase == "forward" else ""] = tensor
    return [Observation(made, "torch", phase, name, looks) for (phase, _), name in named.items()]


def noise(a: np.ndarray) -> np.ndarray:
    factor = 1 + 0.1 * np.random.default_rng(0).normal(size=a.shape)
    return a * factor if a.dtype.kind == "f" else (a + 1) % 5


@pytest.mark.parametrize("arm", OWN)
def test_every_guess_predicts_numbers_or_nothing(arm: str) -> None:
    found = suspects(arm, noise)
    assert {s.phase for s in found} == set(OWN[arm])
    for suspect in found:
        known = 0
        for guess in GUESSES[suspect.phase](suspect):
            for look in suspect.violations:
                predicted = guess.predict(*look)
                known += bool(predicted)
                assert set(predicted) <= set(suspect.expected(*look)), guess.cause
                if guess.detail.get("eps") != 0.0:  # 0/0 where nothing has flowed
                    assert all(np.isfinite(a).all() for a in predicted.values()), guess
            assert not math.isnan(unexplained_share(suspect, guess)), guess
        assert known > 2


@pytest.mark.parametrize("arm", ["softmax", "lenet", "rnn", "nodes", "pipeline"])
@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.full(a.shape, np.nan) if a.dtype.kind == "f" else 0 * a,
        lambda a: np.concatenate([a, a[-1:]]),
        lambda a: a[:-1] if len(a) > 1 else a,
        lambda a: 0 * a,
    ],
    ids=["nan", "longer", "shorter", "zeros"],
)
def test_no_guess_fails_whatever_it_has_to_explain(arm: str, change: Any, tmp_path: Path) -> None:
    for suspect in suspects(arm, change):
        host = ExperimentHost(suspect)
        ranked, log = search(host, JudgingBudget(), host.evaluate)
        assert all(0 < one.score <= 1 for one in ranked)
        log.write(tmp_path / "search.jsonl")
        (again,) = replay_all(read_searches(tmp_path / "search.jsonl"))
        assert again == ranked


# --- numbers --------------------------------------------------------------------------------------


def test_what_is_left_of_a_difference() -> None:
    right, seen = {"1/update/w": np.array([1.0, 0])}, {"1/update/w": np.array([3.0, 0])}
    scene: Any = SimpleNamespace(
        reference=ReplayRecord("numpy", [right], [{}]),
        sides={"torch": ReplayRecord("torch", [seen], [{}])},
        expected=lambda backend, rank, key: right[key],
    )
    suspect = Observation(scene, "torch", "update", "w", [(1, 0)])

    def residual(*numbers: float) -> float:
        predicted = {"w": np.array(numbers)} if numbers else {}
        return unexplained_share(suspect, Hypothesis("x", lambda step, rank: predicted))

    assert residual() == residual(1, 0) == 1  # |3 − 1| / |1| is all of it
    assert residual(3, 0) == 0
    assert residual(2, 0) == pytest.approx(0.25)  # (|3 − 2| / |2|) / (|3 − 1| / |1|)
    assert residual(-1, 0) == pytest.approx(2)


def test_squares_and_fit() -> None:
    one, two, nan = np.array([1.0, 0]), np.array([1.0, 2.0]), np.array([1.0, np.nan])
    assert (relative_error(two, one), relative_error(one, two)) == (4, pytest.approx(4 / 5))
    assert relative_error(two, two) == relative_error(nan, nan) == 0
    assert (
        relative_error(one, two[:1])
        == relative_error(one, nan)
        == relative_error(one, 0 * one)
        == 1e6
    )
    assert fit_factor([(3 * two, two), (3 * one, one)]) == pytest.approx(3)
    assert fit_factor([(two, one)]) == pytest.approx(1)
    assert fit_factor([(two, 0 * one)]) == 0


def test_half_precision_rounds_to_nearest_even() -> None:
    x = 1 + np.array([2.0**-11, 3 * 2.0**-11, 2.0**-10])
    assert (round_to_half(x, "float16") - 1).tolist() == [0, 2.0**-9, 2.0**-10]
    x = 1 + np.array([2.0**-8, 3 * 2.0**-8, 2.0**-7])
    assert (round_to_half(x, "bfloat16") - 1).tolist() == [0, 2.0**-6, 2.0**-7]
    assert round_to_half(np.array([1e5]), "float16")[0] == np.inf
    assert round_to_half(np.array([65536.0]), "bfloat16")[0] == 65536


def test_the_elements_that_differ_most() -> None:
    ref = np.zeros((2, 3))
    seen = ref.copy()
    seen[1, 2], seen[0, 1], seen[0, 0] = -4, 1, 0.01
    told = largest_differences(seen, ref)
    assert told["largest"][0] == {"index": [1, 2], "found": -4, "expected": 0}
    assert [e["index"] for e in told["largest"]] == [[1, 2], [0, 1], [0, 0]]
    assert (told["share"], told["shape"]) == (2 / 6, [[2, 3]])
    seen[0, 2] = np.nan
    assert largest_differences(seen, ref)["largest"][0]["index"] == [0, 2]
    assert largest_differences(seen, ref)["share"] == 1 / 6
    assert largest_differences(ref, ref) == {"shape": [[2, 3]], "share": 0, "largest": []}
    assert largest_differences(seen[0], ref)["shape"] == [[3], [2, 3]]


@pytest.mark.parametrize(
    ("after", "first", "updates", "steps"),
    [
        (0, 1, 9, [1, 2, 3]),
        (0, 1, 1, [1]),
        (0, 3, 9, [1, 2, 3]),
        (5, 9, 20, [1, 2, 3, 6, 7, 8, 9]),
        (2, 3, 9, [1, 2, 3]),
        (10, 40, 99, [1, 2, 3, 11, 12, 13, 38, 39, 40]),
    ],
)
def test_the_updates_to_look_at(after: int, first: int, updates: int, steps: list[int]) -> None:
    assert steps_to_replay(after, first, updates) == steps


def test_a_fault_does_not_hide_in_its_own_envelope() -> None:
    sides = {n: ReplayRecord(n, [], [{"1/loss/batch": w}]) for n, w in (("a", 1e-6), ("b", 1e-2))}
    scene: Any = SimpleNamespace(sides=sides)
    assert rounding_envelope(scene, 0, "1/loss/batch") == pytest.approx(3e-6)
    assert rounding_envelope(scene, 0, "1/loss/rank") == 0
    sides["b"] = ReplayRecord("b", [], [{"1/loss/batch": 2e-6}])
    assert rounding_envelope(scene, 0, "1/loss/batch") == 2e-6


def test_data_is_the_same_in_float32() -> None:
    x = np.random.default_rng(0).normal(size=5)
    assert same_data(x.astype(np.float32), x)
    assert not same_data(x + 1e-3, x)
    assert not same_data(np.arange(3), np.arange(3) + 1)
    assert not same_data(x[:4], x)


def test_a_replay_is_read_back_from_its_files(tmp_path: Path) -> None:
    states, side = cases.referee("softmax")
    resources = RankResources(NumpyBackend(), cases.samples(False))
    trial = TrialRunner(cases.plan(False), "softmax", 0, resources, tmp_path, lambda **_: None)
    start = {1: states[1]}
    START.write_states(tmp_path, start)
    beats: list[None] = []
    replay_updates(trial, "numpy", [1, 3], True, tmp_path, lambda: beats.append(None))
    again = STATES.read_states(tmp_path)
    assert list(again) == [1, 3]
    assert flatten(again).keys() == flatten({s: states[s] for s in (1, 3)}).keys()
    for key, array in flatten(again).items():
        assert np.array_equal(array, flatten(states)[key]), key
    found = read_replay(tmp_path, "numpy", 1)
    assert set(found.ranks[0]) == {k for k in side.ranks[0] if not k.startswith("2/")}
    for key, array in found.ranks[0].items():
        assert np.array_equal(array, side.ranks[0][key]), key
    assert found.widths == [{}]
    assert len(beats) >= 3
    assert unflatten({"4|state|m|fc.bias": np.ones(2)})[4][1]["m"]["fc.bias"].tolist() == [1, 1]
    assert TrialReplay(trial, lambda: None).collect_states(states[1], 1, 1).keys() == {1}


# --- verdicts -------------------------------------------------------------------------------------

KEY = "gradient/00000001/w.bias"


def drawn(*moves: float) -> Envelope:
    """Return draws that move the loss and one gradient by these relative amounts."""
    envelope, base = Envelope(), np.ones(4)
    for by in moves:
        capture = {KEY: base * (1 + by)}
        envelope = update_envelope(envelope, np.array([1 + by]), capture, np.ones(1), {KEY: base})
    return envelope


def test_what_only_the_order_of_samples_moves_does_not_count() -> None:
    fault = drawn(1e-6, 2e-2, 3e-2)
    assert fault.tensors[KEY] == pytest.approx(3e-2, rel=0.1)
    for kept in (
        clip_to_plain(fault, "w"),
        clip_to_plain(Envelope.from_content(fault.describe()), "w"),
    ):
        assert kept.tensors[KEY] == pytest.approx(1e-6, rel=1e-3)
        assert kept.loss[0] == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("moves", [(2e-2, 2e-2, 3e-2), (1e-6, 5e-5, 9e-5), (1e-5, 9e-4)])
def test_what_moved_weights_move_too_counts(moves: tuple[float, ...]) -> None:
    right = drawn(*moves)
    assert clip_to_plain(right, "w").tensors == right.tensors
    assert clip_to_plain(right, "w").loss.tolist() == right.loss.tolist()


def test_envelopes_of_earlier_versions_stay() -> None:
    told = drawn(1e-6, 2e-2).describe()
    del told["plain"]
    old = Envelope.from_content(told)
    assert clip_to_plain(old, "w") is old
    assert "plain" not in old.describe()


def test_ranks_that_are_apart_are_different() -> None:
    a, b = trajectory(), trajectory(backend="b")
    together = replace(b, replica_divergence={step: [0.0, 0.0, 1e-9] for step in TRACED})
    assert compare_trajectories(a, together, 4).verdict == "equal"
    apart = replace(b, replica_divergence={step: [0.0, 0.0, 1e-3 * (step > 1)] for step in TRACED})
    told = compare_trajectories(a, apart, 4)
    first = told.first_divergence
    assert told.verdict == "different"
    assert (first["step"], first["phase"], first["tensor"]) == (2, "update", "rank 2 of b")


def test_weights_that_were_not_loaded_end_the_trial() -> None:
    given = {"w": np.ones(3), "b": np.zeros(2)}
    check_loaded("gd", given, {n: a.astype(np.float32) for n, a in given.items()})
    with pytest.raises(TrialError, match=r"arm gd: .*initial weights: b came back"):
        check_loaded("gd", given, {**given, "b": np.full(2, 1e-7)})


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("arm a: the loss is nan at step 3; lower lr", 3),
        ("rank 0 was killed", None),
    ],
)
def test_a_trial_that_its_numbers_ended_is_looked_into(
    reason: str, step: int | None, tmp_path: Path
) -> None:
    trials = {
        ("a", b, 0): TrialRecord(arm="a", backend=b, seed=0, status="failed", reason=reason)
        for b in ("x", "y")
    }
    lines = [json.dumps({"metric": "loss", "step": n, "value": 1.0}) for n in (1, 2)]
    (tmp_path / "rank0.jsonl").write_text("\n".join(lines))
    folder = SimpleNamespace(trials=trials, trial_folder=lambda trial: tmp_path)
    lost = {
        "arm": "a",
        "seed": 0,
        "a": "x",
        "b": "y",
        "verdict": "not comparable",
        "reason": "trial_missing",
        "evidence": {"y": "failed"},
    }
    both = {**lost, "evidence": {"x": "failed", "y": "failed"}}
    session: Any = SimpleNamespace(folder=folder)
    found = numeric_failures(session, {"comparisons": [lost, both]})
    assert [c["first_divergence"]["step"] for c in found] == ([] if step is None else [step])


def test_ranks_of_a_replay_meet_however_short_the_path_of_temporary_folders_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(store_for(Path("find/torch.job")), FileStore)


def test_the_referee_adds_up_by_itself_what_an_exact_strategy_should() -> None:
    """Both sides run a wrong strategy; the reference must not repeat its mistake."""
    whole = cases.plan(False)
    name = next(n for n, arm in whole.experiment.arms.items() if arm.world_size > 1)

    def followed(strategy: str) -> str:
        arm = whole.experiment.arms[name]
        settings = arm.aggregation.model_copy(update={"strategy": strategy})
        arms = {**whole.experiment.arms, name: arm.model_copy(update={"aggregation": settings})}
        experiment = whole.experiment.model_copy(update={"arms": arms})
        plan = reference_plan(replace(whole, experiment=experiment), name)
        return plan.experiment.arms[name].aggregation.strategy

    assert [followed(s) for s in ("ring", "tree", "neighbour")] == ["all_reduce"] * 2 + [
        "neighbour"
    ]


@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
def test_a_recurrent_layer_may_have_an_approximate_tanh(kind: type[RecurrentLayer]) -> None:
    layer, draw = kind(inputs=3, hidden=4), np.random.default_rng(0)
    own = {name: 3 * draw.normal(size=shape) for name, shape in layer.parameters().items()}
    x = 3 * draw.normal(size=(2, 5, 3))
    exact, _ = PAIRS[kind][0](layer, x, own)
    changes = {cause: change for cause, change, _ in alternatives(layer)}
    gap = np.abs(changes["tanh-approximation"](LayerIO("rnn", layer, x, exact, own)) - exact).max()
    assert 1e-6 < gap < 1e-3
    relu = RNN(inputs=3, hidden=4, nonlinearity="relu")
    assert "tanh-approximation" not in {cause for cause, *_ in alternatives(relu)}


def test_the_approximation_is_exact_near_zero_and_one_beyond_five() -> None:
    x = np.array([0.0, 1.0, 5.0, -5.0, 5.1, -5.1])
    approximate = rational_tanh(x)
    assert np.abs(approximate - np.tanh(x))[:2].max() < 1e-9
    assert 1 < approximate[2] < 1 + 2e-5
    assert -1 > approximate[3] > -1 - 2e-5
    assert approximate[4:].tolist() == [1.0, -1.0]
