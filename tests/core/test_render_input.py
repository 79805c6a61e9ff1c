"""Requests that cannot be rendered: a one-line error, exit code 2, and nothing written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import TOML, dualml, lab

from dualml.common.errors import UserError
from dualml.runner.render import quantities

__all__ = ["lab"]

COMPOSE, KUBERNETES = ("--on", "compose"), ("--on", "kubernetes")
TORCH, TWO = ("--backend", "torch"), ("--nodes", "2")
LAB2 = ("lab2", "--quick")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((*LAB2, *COMPOSE, "--name", "a; rm -rf /"), "--name 'a; rm -rf /': use up to 40 of a-z"),
        ((*LAB2, *COMPOSE, "--name", "x" * 41), "use up to 40 of a-z"),
        ((*LAB2, *COMPOSE, "--image", "x y:`id`"), "--image 'x y:`id`' is no name of an image"),
        (
            ("lab2", *COMPOSE, *TWO, "--arm", "ring-n4"),
            "arm ring-n4 has 4 ranks; --nodes 2 --ranks-per-node 1 give 2: make their product 4",
        ),
        (("lab1", *COMPOSE, *TWO), "2 x 1 ranks, but no arm that runs has several"),
        ((*LAB2, *KUBERNETES, "--kind", "jobset"), "--kind 'jobset'; known: pytorchjob, trainjob"),
        ((*LAB2, *KUBERNETES, *TORCH, "--kind", "trainjobs"), "did you mean 'trainjob'?"),
        ((*LAB2, *COMPOSE, "--kind", "volcano"), "--kind is for --on kubernetes"),
        (
            (*LAB2, *COMPOSE, *TORCH, "--gpus-per-node", "1", "--image", "lab/dualml:1.0-cpu"),
            "--gpus-per-node 1 with --image lab/dualml:1.0-cpu: by its tag it is for CPUs",
        ),
        ((*LAB2, *COMPOSE, "--gpus-per-node", "1", "--device", "cpu"), "leave one of them out"),
        ((*LAB2, *COMPOSE, "--device", "cuda"), "--device cuda without --gpus-per-node"),
        (
            (*LAB2, *COMPOSE, *TORCH, "--device", "ascend", "--gpus-per-node", "1"),
            "with --backend mindspore only",
        ),
        ((*LAB2, *COMPOSE, "--rate", "fast"), "--rate 'fast/s': write a number above 0"),
        ((*LAB2, *COMPOSE, "--rate", "1bit"), "--rate 1bit: use one from 1Kbit/s to 1Tbit/s"),
        ((*LAB2, *COMPOSE, "--time", "soon"), "--time 'soon': use minutes"),
        ((*LAB2, *COMPOSE, "--time", "0"), "--time '0': use minutes"),
        ((*LAB2, *COMPOSE, "--memory", "much"), "--memory 'much': write bytes"),
        ((*LAB2, *COMPOSE, "--disk", "1GB"), "--disk is for --on kubernetes"),
        (
            (*LAB2, *KUBERNETES, "--backend", "mindspore", "--kind", "pytorchjob"),
            "--kind pytorchjob: it is for --backend torch, and this runs mindspore; use --kind "
            "volcano",
        ),
        (
            (*LAB2, *KUBERNETES, "--backend", "both", "--kind", "trainjob"),
            "--kind trainjob: it is for --backend torch, and this may run several backends",
        ),
        ((*LAB2, *KUBERNETES, "--kind", "trainjob"), "this may run several backends"),
        ((*LAB2, *COMPOSE, *TWO, "--ranks-per-node", "2"), "choose --backend torch or mindspore"),
        ((*LAB2, *COMPOSE, *TWO, "--backend", "numpy"), "the ranks of numpy are threads of one"),
        ((*LAB2, *COMPOSE, "--backend", "jax"), "unknown backend 'jax'"),
        ((*LAB2, *COMPOSE, *TWO, "--world-size", "4"), "submit takes no --world-size"),
        ((*LAB2, *COMPOSE, "--hosts", "x.toml"), "submit takes no --hosts"),
        ((*LAB2, *COMPOSE, "--gpus", "1"), "--gpus is not for --on compose"),
        ((*LAB2, *COMPOSE, "--out", "x"), "--out is not for --on compose"),
        (("lab9", *COMPOSE), "unknown experiment 'lab9'"),
        ((*LAB2, "--on", "nomad"), "--on must be one of local, slurm, compose, kubernetes"),
    ],
)
def test_it_is_said_in_one_line(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    from dualml.interface.cli.app import app

    with pytest.raises(UserError) as error:
        app(["submit", *words, "--render", str(tmp_path / "out")], standalone_mode=False)
    assert text in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_is_needed_and_nothing_is_overwritten(tmp_path: Path) -> None:
    words = ("submit", *LAB2, *COMPOSE)
    assert "name a folder, --render DIR" in dualml(*words).stderr
    (tmp_path / "x").write_text("mine")
    for folder, text in ((tmp_path, "is not empty"), (tmp_path / "x", "is a file")):
        done = dualml(*words, "--render", folder)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert text in done.stderr
    done = dualml(*words, "--render", tmp_path / "x" / "y")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("option", [("--image", "x:y"), ("--rate", "1Gbit"), ("--render", "x")])
def test_options_of_files_are_not_for_queues(option: tuple[str, str]) -> None:
    done = dualml("submit", *LAB2, "--backend", "numpy", *option)
    assert done.returncode == 2
    assert f"{option[0]} is for --on compose and --on kubernetes" in done.stderr


def test_a_name_of_an_experiment_becomes_one_of_a_network(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(TOML.replace('name = "tiny"', 'name = "My_lab"'))
    done = dualml("submit", path, *COMPOSE, "--render", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "name: dualml-my-lab\n" in (tmp_path / "out" / "compose.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:00:00", 3600),
        ("2-0", 172800),
        ("1-2:30", 95400),
        ("1-00:00:01", 86401),
    ],
)
def test_times_are_read_as_slurm_reads_them(text: str, value: int) -> None:
    assert quantities.parse_time_limit(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4 * 10**9, "4G"),
        (2**30, "1Gi"),
        (1536 * 2**20, "1536Mi"),
        (5, "5"),
        (1001, "1001"),
        (10**8, "100M"),
        (0, "0"),
    ],
)
def test_quantities_are_short_and_exact(value: int, text: str) -> None:
    assert quantities.format_quantity(value) == text
    assert quantities.QUANTITY.fullmatch(text)


def test_rates() -> None:
    assert quantities.parse_rate("100Mbit") == quantities.parse_rate("12.5MB/s") == 10**8
    with pytest.raises(UserError, match=re.escape("--rate 99Tbit: use one from")):
        quantities.parse_rate("99Tbit")
