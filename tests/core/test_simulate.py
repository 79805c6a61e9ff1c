"""`dualml simulate` from the outside, and what its options may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import DOCS, dualml, examples_are_printed, strict

from dualml.common.errors import UserError
from dualml.common.files import write_json
from dualml.interface.cli import report_error
from dualml.interface.cli.simulate import simulate as command
from dualml.planning.cost import Link, Point, cost, fit_all, predict, units
from dualml.planning.cost.request import parse_ranks

LENET = 4 * 51_902


def test_the_table_and_its_sentences() -> None:
    done = dualml("simulate", "--ranks", "2,16,64", "--strategy", "ring", "--strategy", "tree")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in reversed(done.stdout.splitlines()) if line}
    link = Link(5e-5, 1e-9)
    for name in ("ring", "tree"):
        for n in (2, 16, 64):
            assert units.format_seconds(predict(name, n, LENET, link).seconds) in rows[name]
    assert rows["ring"].count("*") == 2
    assert rows["tree"].count("*") == 1
    assert "ring and tree: up to n = 22 ring is faster, from n = 23 on tree." in done.stdout


def test_json_for_a_hundred_thousand_ranks() -> None:
    done = dualml(
        *("simulate", "--json", "--ranks", "2..100000", "--size", "4MB", "--alpha", "100us"),
        *("--bandwidth", "10Gbit/s", "--gamma", "0.1ns/B", "--compute", "20ms", "--lang", "zh"),
        *("--slow-rank", "1", "--slow-compute", "4", "--slow-bandwidth", "10MB/s"),
        *("--topology", "nodes:8", "--inter-alpha", "1ms", "--strategy", "tree"),
    )
    assert done.returncode == 0, done.stderr
    found = strict(done.stdout)
    assert [p["ranks"] for p in found["predictions"]] == [*(2**i for i in range(1, 17)), 100_000]
    assert {p["how"] for p in found["predictions"]} == {"events", "closed"}
    assert found["links"]["tree"] == vars(Link(1e-4, 8e-10, 1e-10))
    assert found["slow"]["bandwidth_bytes_per_s"] == 1e7
    last = found["predictions"][-1]
    assert last["cost"] == vars(cost("tree", 100_000, 4_000_000))
    assert last["seconds"] > 0.08
    assert len(found["predictions"][0]["rank_seconds"]["wait"]) == 2


def test_constants_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = Link(3e-4, 2e-9)
    points = [
        Point.from_measurement("ring", n, size, predict("ring", n, size, link).seconds)
        for n in (2, 4)
        for size in (4000, 400_000)
    ]
    path = tmp_path / "fits.json"
    write_json(path, fit_all(points).describe())
    command(strategy=["ring"], ranks="8", fit=path)
    told = capsys.readouterr().out
    assert f"constants of {path}" in told.replace("\n", "")
    assert units.format_seconds(predict("ring", 8, LENET, link).seconds) in told
    with pytest.raises(UserError, match="--fit brings α, β and γ"):
        command(fit=path, alpha="1us")


def test_the_schedule_as_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    command(schedule=True, ranks="2", strategy=["ring", "local_sgd"], every=7)
    grid = "ring\nrank 0 | 0→1+  1→1=\nrank 1 | 1→0+  0→0=\n"
    assert capsys.readouterr().out == f"{grid}\nlocal_sgd\nring, every 7 updates\n"


def test_one_clear_line_from_the_outside() -> None:
    done = dualml("simulate", "--strategy", "rign")
    assert done.returncode == 2
    assert done.stderr == "dualml: unknown strategy 'rign'; did you mean 'ring'?\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ranks": "0"}, "ranks '0': write 2,4,8 or 2..100000, numbers from 1"),
        ({"ranks": "8..2"}, "ranks '8..2': write"),
        ({"ranks": "x"}, "ranks 'x': write"),
        ({"ranks": "2..10000000"}, "at most 1,000,000"),
        ({"size": "4XB"}, "--size '4XB': write bytes, or a number with KB"),
        ({"alpha": "50"}, "--alpha '50': write a number with ns, us, ms or s"),
        ({"compute": "-1s"}, "--compute '-1s': write"),
        ({"bandwidth": "1GB"}, "--bandwidth '1GB': write a number above 0 with MB/s"),
        ({"bandwidth": "0GB/s"}, "--bandwidth '0GB/s'"),
        ({"beta": "fast"}, "--beta 'fast': write seconds per byte, as in 1ns/B"),
        ({"beta": "1ns/B", "bandwidth": "1GB/s"}, "give one"),
        ({"size": "1MB", "model": "lenet"}, "give one of them"),
        ({"model": "lenett"}, "did you mean 'lenet'"),
        ({"slow_rank": 8, "slow_compute": 2.0, "ranks": "8"}, "slow rank 8: with n = 8"),
        ({"slow_rank": 1}, "say how it is slow"),
        ({"slow_compute": 0.0}, "compute factor above 0"),
        ({"topology": "nodes"}, "topology 'nodes': use flat, nodes:K"),
        ({"inter_alpha": "1ms"}, "need nodes:K; received 'flat'"),
        ({"schedule": True, "ranks": "65"}, "one n up to 64"),
        ({"schedule": True, "ranks": "2,4"}, "received 2, 4"),
        ({"every": 0}, "every k ≥ 1"),
        ({"fit": Path("none.json")}, "none.json is missing"),
    ],
    ids=str,
)
def test_bad_input_names_the_remedy(
    options: dict[str, object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError) as refused:
        command(**options)  # type: ignore[arg-type]
    assert report_error(refused.value) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("page", ["cost.md", "cost.zh.md"])
def test_the_examples_of_the_page_are_what_is_printed(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examples_are_printed(DOCS / page, "```", 100, capsys) == 2


def test_units() -> None:
    assert units.parse_seconds("50us") == units.parse_seconds("50µs") == pytest.approx(5e-5)
    assert units.parse_seconds("0") == 0
    assert (units.parse_bytes("4MB"), units.parse_bytes("1.5KiB"), units.parse_bytes("7")) == (
        4_000_000,
        1536,
        7,
    )
    assert units.parse_rate("1GB/s") == units.parse_rate("8Gbit/s") == 1e9
    assert units.parse_seconds_per_byte("1ns/B") == pytest.approx(1e-9)
    for value, text in ((0, "0 s"), (1.234e-5, "12.3 µs"), (0.9999, "1.00 s"), (4567, "4,567 s")):
        assert units.format_seconds(value) == text
    assert parse_ranks("3..20,7") == (3, 4, 7, 8, 16, 20)
