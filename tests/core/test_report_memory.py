"""Memory of an update: the table, the figure, and the sentences about the closed form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_run
import page_parts
import pytest

from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.store.load import load

PSI, MIB = 2**18, 2**20
SLOTS = {"gd": 0, "sgd": 0, "adam": 2}
Change = Callable[[list[dict[str, Any]]], None]


def make_run(folder: Path, change: Change = lambda trials: None, ranks: int = 1) -> Path:
    """Write a run whose successful trials counted memory; MindSpore does not report activations."""

    def add_memory(run: dict[str, Any]) -> None:
        trials = [t for t in run["trials"] if t["status"] == "ok"]
        for trial in trials:
            b = 8 * PSI if trial["backend"] == "numpy" else 4 * PSI
            own = {"parameters": PSI, "weights": b, "gradients": b, "buckets": 0}
            own |= {"state": SLOTS[trial["arm"]] * b, "device_peak": None}
            shown = None if trial["backend"] == "mindspore" else 3 * MIB
            trial["device_memory"] = [
                {**own, "activations": shown and shown + rank * MIB} for rank in range(ranks)
            ]
        change(trials)

    return fake_run.make_run(folder, change=add_memory)


def row(folder: Path, arm: str, backend: str) -> dict[str, str]:
    tables = page_parts.evidence_tables(load([folder]), "device_memory", Messages("en"))
    return page_parts.row(tables["device_memory"], arm, backend)


def test_counted_beside_the_closed_form(tmp_path: Path) -> None:
    make_run(tmp_path)
    adam = row(tmp_path, "adam", "torch")
    assert adam["parameters Ψ"] == "262,144"
    assert adam["weights + gradients + state, closed form"] == "(4 + 4 + 8)Ψ = 4"
    counted = ("weights", "gradients", "optimizer's state", "activations", "device peak")
    assert [adam[column] for column in counted] == ["1", "1", "2", "3", "–"]
    referee = row(tmp_path, "gd", "numpy")
    assert referee["weights + gradients + state, closed form"] == "(8 + 8 + 0)Ψ = 4"
    assert row(tmp_path, "sgd", "mindspore")["activations"] == "–"


def test_the_rank_that_holds_more_is_shown(tmp_path: Path) -> None:
    make_run(tmp_path, ranks=2)
    assert row(tmp_path, "gd", "torch")["activations"] == "3 / 4"
    assert row(tmp_path, "gd", "torch")["weights"] == "1"


def test_what_is_said(tmp_path: Path) -> None:
    make_run(tmp_path)
    said = page_parts.findings_by_key(tmp_path)
    assert said["device_memory.exact"] == [
        "Weights, gradients and state are the closed form to the byte in all 9 rows."
    ]
    assert said["device_memory.unseen"][0].startswith("mindspore: activations are not visible")
    assert said["device_memory.no_peak"][0].startswith("numpy, torch and mindspore:")


def test_one_byte_too_many_is_said(tmp_path: Path) -> None:
    def add_byte(trials: list[dict[str, Any]]) -> None:
        trial = next(t for t in trials if (t["arm"], t["backend"]) == ("adam", "torch"))
        trial["device_memory"][0]["state"] += 1

    make_run(tmp_path, add_byte)
    said = page_parts.findings_by_key(tmp_path)
    assert "device_memory.exact" not in said
    assert said["device_memory.off"] == [
        "Weights, gradients or state differ from the closed form in 1 of 9 rows, of what ranks "
        "share all of them together: adam on torch optimizer's state +1 B."
    ]


# --- ranks that share -----------------------------------------------------------------------------

SHARED = {
    "zero": {"method": "zero_optimizer", "world_size": 2},
    "zero2": {"method": "deepspeed_zero2", "world_size": 2},
    "reducer": {"method": "reducer", "world_size": 2},
}
#: Arm → bytes that each rank counted, for Adam, whose two state tensors zero_optimizer shards
#: unevenly; DeepSpeed has a third one and pads by eight numbers.
COUNTED = {
    "zero": [(4 * PSI, 4 * PSI, 6 * PSI, 4 * PSI), (4 * PSI, 4 * PSI, 2 * PSI, 4 * PSI)],
    "zero2": [(4 * PSI, 2 * PSI + 16, 6 * PSI + 48, 2 * 10**9)] * 2,
    "reducer": [(4 * PSI, 4 * PSI, 8 * PSI, 0)] * 2,
}


@pytest.fixture
def shared_run(tmp_path: Path) -> Path:
    def change(run: dict[str, Any]) -> None:
        own = {"zero": "torch", "zero2": "torch", "reducer": "mindspore"}
        run["trials"] = [t for t in run["trials"] if own.get(t["arm"]) in (None, t["backend"])]
        for trial in run["trials"]:
            if trial["arm"] == "one":  # the reference, which counted nothing
                continue
            trial["world_size"] = 2
            shown = None if trial["backend"] == "mindspore" else MIB
            names = ("weights", "gradients", "state", "buckets")
            trial["device_memory"] = [
                {"parameters": PSI, **dict(zip(names, rank, strict=True)), "activations": shown}
                for rank in COUNTED[trial["arm"]]
            ]

    adam = fake_run.MAIN["adam"]
    arms = {"one": adam, **{name: {**adam, **more} for name, more in SHARED.items()}}
    return fake_run.make_run(
        tmp_path,
        arms=arms,
        backends=("torch", "mindspore"),
        seeds=(0,),
        failed=None,
        different=None,
        parity=False,
        change=change,
    )


def test_what_ranks_share_is_divided_in_the_closed_form(shared_run: Path) -> None:
    column = "weights + gradients + state, closed form"
    assert row(shared_run, "zero", "torch")[column] == "(4 + 4 + 8/2)Ψ = 3"
    assert row(shared_run, "zero2", "torch")[column] == "(4 + 4/2 + 12/2)Ψ = 3"
    assert row(shared_run, "reducer", "mindspore")[column] == "(4 + 4 + 8)Ψ = 4"
    assert row(shared_run, "zero", "torch")["optimizer's state"] == "1.5"
    assert row(shared_run, "zero2", "torch")["buckets"] == "1,907"


def test_padding_and_what_is_held_besides_are_said_with_numbers(shared_run: Path) -> None:
    said = page_parts.findings_by_key(shared_run)
    (off,) = said["device_memory.off"]
    assert off.endswith("zero2 on torch gradients +32 B and optimizer's state +96 B.")
    zero, deepspeed = said["device_memory.beside"]
    assert zero.startswith("zero on torch: the state is partitioned by whole tensors")
    assert zero.endswith(
        "has 3.5 MiB of weights, gradients and state, 3 MiB by the closed form, "
        "and 1 MiB in buckets."
    )
    assert "a bucket of 5·10⁸ numbers" in deepspeed
    assert deepspeed.endswith("and 1.86 GiB in buckets.")


def test_the_table_of_methods_shows_what_is_known_and_what_is_not(shared_run: Path) -> None:
    run = load([shared_run])
    table = page_parts.evidence_tables(run, "methods", Messages("en"))["resources"]
    at = [column.label for column in table.columns].index("device memory")
    cells = {(line[1].text, line[2].text): line[at] for line in table.cells}
    zero = cells["zero", "torch"]
    assert zero.text == "5.5 MiB"
    assert zero.note == "closed form 3 MiB; activations 1 MiB; buckets 1 MiB"
    reducer = cells["reducer", "mindspore"]
    assert reducer.text == "≥ 4 MiB"
    assert reducer.note == "without activations; closed form 4 MiB"
    (said,) = page_parts.findings_by_key(shared_run)["methods.unseen"]
    assert said.startswith("mindspore: device memory is at least (≥)")
    page_parts.same_in_both_languages(run)


@pytest.mark.parametrize(
    ("arm", "backend", "peak", "held"),
    [
        ("adam", "torch", None, 4 * MIB + 4 * MIB),  # of the rank with more activations
        ("adam", "torch", 50 * MIB, 50 * MIB),
        ("adam", "mindspore", None, None),
        ("adam", "mindspore", 50 * MIB, 50 * MIB),
    ],
)
def test_bytes_on_the_device(
    tmp_path: Path, arm: str, backend: str, peak: int | None, held: int | None
) -> None:
    def set_peak(trials: list[dict[str, Any]]) -> None:
        for trial in trials:
            for rank in trial["device_memory"]:
                rank["device_peak"] = peak

    run = load([make_run(tmp_path, set_peak, ranks=2)])
    assert {t.device_bytes for t in run.select(arm, backend)} == {held}


def test_older_folders_have_none_of_it(tmp_path: Path) -> None:
    run = load([fake_run.make_run(tmp_path)])
    assert not page_parts.evidence(run, "device_memory", Messages("en"))
    assert not any(key.startswith("device_memory") for key in page_parts.findings_by_key(tmp_path))
    assert run.trials[0].device_bytes is None


def test_the_figure_has_a_bar_for_every_part(tmp_path: Path) -> None:
    run = load([make_run(tmp_path)])
    (figure,) = page_parts.evidence_figures(run, "device_memory", Messages("en"))
    assert {key.name for key in figure.entries} == {"weights", "gradients", "state", "activations"}
    assert "adam torch 7" in figure.alt


def test_both_languages_say_the_same(tmp_path: Path) -> None:
    run = load([make_run(tmp_path)])
    page_parts.same_in_both_languages(run)
    assert all(page_parts.evidence(run, "device_memory", Messages(lang)) for lang in LANGUAGES)
