"""The exercise on parameter servers, without a framework: rules, catalogue, messages, pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from look_alikes import find_look_alikes

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.exercise import Answer, Trouble
from dualml.course.judge import judge
from dualml.course.labs import find_exercise, load_lab
from dualml.course.language_model import (
    WEIGHTS,
    join_weights,
    language_model,
    split_weights,
    weight_shapes,
)
from dualml.course.rnn_ps.remote import REMOTE
from dualml.course.rnn_ps.server import SERVER, WIDTH, WORDS
from dualml.course.tally import Tally
from dualml.course.workspace import read_page, read_solution, read_translations

#: Mistakes that an error or the traffic shows.
REMOTE_ERRORS = {
    "context_missing",
    "context_ended",
    "context_kept_open",
    "reference_not_local",
    "state_not_detached",
    "backward_local",
}
SERVER_ERRORS = {"one_sided", "message_mismatch", "whole_table_sent", "whole_gradient_sent"}


def flags_of(requirements: Any) -> list[str]:
    return list(dict.fromkeys(flag for r in requirements for flag in r.flags))


def names_of(requirements: Any) -> set[str]:
    return {flag.partition("#")[0] for flag in flags_of(requirements)}


MISTAKES = {
    "remote": names_of(REMOTE) | REMOTE_ERRORS,
    "server": names_of(SERVER) | SERVER_ERRORS,
}


def drawn(words: int = 5, width: int = 3, hidden: int = 2) -> tuple[Any, dict[str, Any], Any, Any]:
    draw = np.random.default_rng(3)
    weights = {n: draw.normal(size=s) for n, s in weight_shapes(words, width, hidden).items()}
    rows = draw.normal(size=(4, 3, width))
    return rows, weights, draw.integers(0, words, (4, 3)), draw.uniform(-0.9, 0.9, (3, hidden))


@pytest.mark.parametrize("last_word", [False, True])
def test_the_gradients_are_those_of_the_loss(last_word: bool) -> None:
    rows, weights, targets, state = drawn()
    _, of_rows, of_weights, _ = language_model(rows, weights, targets, state, last_word)

    def slope(a: Any, index: tuple[int, ...]) -> float:
        before, ends = a[index], []
        for step in (1e-6, -1e-6):
            a[index] = before + step
            ends.append(language_model(rows, weights, targets, state, last_word)[0])
        a[index] = before
        return float(ends[0] - ends[1]) / 2e-6

    for a, g in ((rows, of_rows), *((weights[n], of_weights[n]) for n in WEIGHTS)):
        measured = [slope(a, index) for index in np.ndindex(a.shape)]
        np.testing.assert_allclose(measured, np.ravel(g), atol=1e-7)


def test_weights_are_joined_and_split() -> None:
    _, weights, _, _ = drawn()
    again = split_weights(join_weights(weights), weight_shapes(5, 3, 2))
    assert all(np.array_equal(weights[name], again[name]) for name in WEIGHTS)


def test_an_update_of_the_server_is_that_of_one_process_with_all_windows() -> None:
    call = SERVER[1].calls(np.random.default_rng(5))[1]
    own = call.arrays[0]
    now = {name: own[name].astype(np.float64) for name in ("table", *WEIGHTS)}
    expected = SERVER[1].expected(call)[0]
    for step in range(1, call.options["steps"] + 1):
        windows = [(a[f"words/{step}"], a[f"y/{step}"]) for a in call.arrays[1:]]
        words = np.concatenate([w.reshape(y.shape) for w, y in windows], axis=1)
        targets = np.concatenate([y for _, y in windows], axis=1)
        state = np.zeros((words.shape[1], call.options["hidden"]))
        weights = {name: now[name] for name in WEIGHTS}
        _, of_rows, of_weights, _ = language_model(now["table"][words], weights, targets, state)
        table = np.zeros_like(now["table"])
        np.add.at(table, words, of_rows)
        for name, g in {"table": table, **of_weights}.items():
            now[name] = now[name] - call.options["lr"] * g
        np.testing.assert_allclose(expected[f"{step}/table"], now["table"])
        np.testing.assert_allclose(expected[f"{step}/weights"], join_weights(now))


@pytest.mark.parametrize("requirements", [REMOTE, [r for r in SERVER if r.name != "server.sent"]])
def test_mistakes_show_and_no_two_look_alike(requirements: Any) -> None:
    calls = [(r, call) for r in requirements for call in r.calls(np.random.default_rng(5))]
    flags = flags_of(requirements)
    assert find_look_alikes(calls, flags) == []


def test_whoever_sends_more_than_rows_is_named() -> None:
    requirement = SERVER[-1]
    (call,) = requirement.calls(np.random.default_rng(5))
    most = requirement.expected(call)
    table = 4 * WORDS * WIDTH * call.options["steps"]
    assert judge(requirement, [call], [Answer(most)]).status == "met"
    assert judge(requirement, [call], [Answer([{"bytes": np.asarray(9)}] * 3)]).status == "met"
    for rank, name in ((0, "whole_table_sent"), (2, "whole_gradient_sent")):
        more = [{"bytes": a["bytes"] + table * (r == rank)} for r, a in enumerate(most)]
        judgement = judge(requirement, [call], [Answer(more)])
        assert judgement.mistakes == (name,)
        assert judgement.difference is not None
        assert judgement.difference.rank == rank


def test_the_bytes_of_messages_are_counted_for_rows() -> None:
    tally = Tally("rows", {})
    tally.messages = {1: [96, 8]}
    assert int(tally.arrays(1)["bytes"]) == 104
    assert int(tally.arrays(0)["bytes"]) == 0


@pytest.mark.parametrize(
    ("kind", "message", "mistake"),
    [
        (
            "TypeError",
            "DistributedOptimizer.step() missing 1 required positional argument: 'context_id'",
            "context_missing",
        ),
        ("TypeError", "backward(): incompatible function arguments.", "context_missing"),
        ("RuntimeError", "Could not find autograd context with id: 3", "context_ended"),
        (
            "RuntimeError",
            "Already have an autograd context id for this thread.",
            "context_kept_open",
        ),
        (
            "RuntimeError",
            "Error on Node 1: RPCErr:1:RPC ran for more than set timeout (5000 ms)",
            "context_kept_open",
        ),
        (
            "RuntimeError",
            "Trying to backward through the graph a second time",
            "state_not_detached",
        ),
        (
            "RuntimeError",
            'graphTask_ INTERNAL ASSERT FAILED at "context.cpp":113, please report a '
            "bug to PyTorch.",
            "backward_local",
        ),
        ("RuntimeError", "something else", ""),
    ],
)
def test_an_error_of_remote_calls_names_its_mistake(kind: str, message: str, mistake: str) -> None:
    for requirement in REMOTE:
        found = requirement.mistakes_of(Trouble(kind, message))
        assert found == ((mistake,) if mistake else ())


def test_a_message_of_another_size_names_its_mistake() -> None:
    text = "rank 0 receives 12 elements from rank 1 and expects 134"
    for requirement in SERVER:
        assert requirement.mistakes_of(Trouble("ValueError", text)) == ("message_mismatch",)
        assert requirement.mistakes_of(Trouble("ValueError", "another one")) == ()


def test_every_mistake_is_planted() -> None:
    plants = load_plants("rnn_ps")
    for one in load_lab("rnn_ps").files:
        own = [p for p in plants if p.file == one.name]
        wanted = set(MISTAKES[one.name.partition("_")[0]])
        assert {p.name for p in own if not p.right} == wanted
        assert len([p for p in own if p.right]) >= 5
    for plant in plants:
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_rnn_ps")
    depths = ("symptom", "place", "principle", "cause")
    # Ranks that wait in vain are explained where Lab 2 explains them.
    names = (MISTAKES["remote"] | MISTAKES["server"]) - {"one_sided"}
    wanted = {f"mistake.{name}.{depth}" for name in names for depth in depths}
    requirements = {f"requirement.{r.name}" for r in (*REMOTE, *SERVER)}
    assert own.keys() == wanted | requirements | {"course.fact.bytes"}
    assert all(own.values())
    assert all(f"mistake.one_sided.{depth}" in load_messages(lang) for depth in depths)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("task", "requirements"), [("remote", REMOTE), ("server", SERVER)])
def test_the_task_names_every_requirement(task: str, requirements: Any, lang: str) -> None:
    page = read_page("rnn_ps", task, lang)
    assert page.startswith("# ")
    for requirement in requirements:
        assert f"`{requirement.name}`" in page


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip() for one in load_lab("rnn_ps").files for line in read_solution(one).splitlines()
    }
    assert read_translations("rnn_ps").keys() <= there
