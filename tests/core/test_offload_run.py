"""Whole runs with offloaded state and weights, on the reference (no framework needed)."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import Any

import pytest
from command import dualml, goes_on_when_interrupted, run, strict
from page_parts import findings_by_key, page, tables

from dualml.algorithms.model import model
from dualml.experiment.arm import make_arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import baseline_of, single_process_arm
from dualml.experiment.load import load
from dualml.parallel.memory import estimate_offload_footprint
from dualml.parallel.offload import Offload
from dualml.parallel.offload.estimates import estimate_offload_volume
from dualml.parallel.zero import units_of

SHARED = """
optimizer = { name = "adam", lr = 0.001 }
batch_size = 16
updates = 8
aggregation = { bucket_bytes = 0 }
"""
ARMS = {
    "device": "",
    "host": 'offload = { state = "host" }',
    "disk": 'offload = { state = "disk" }',
    "weights": 'offload = { weights = "host" }',
    "both": 'offload = { state = "disk", weights = "disk" }',
    "serial": 'offload = { state = "disk", weights = "disk", overlap = false }',
    "zero1": 'offload = { state = "host" }\nworld_size = 2\nzero = 1',
    "zero3": 'offload = { state = "disk", weights = "disk" }\nworld_size = 2\nzero = 3',
    "bf16": 'precision = "bf16"',
    "bf16-all": 'precision = "bf16"\noffload = { state = "disk", weights = "disk" }',
}
TOML = """
name = "offload"
model = "lenet"
title = { en = "Offload", zh = "卸载" }
[data]
name = "digits"
train = 200
test = 50
[evaluation]
per_epoch = 1
early = []
train_samples = 20
""" + "".join(f"[arms.{name}]\n{text}\n{SHARED}" for name, text in ARMS.items())
SGD = {"name": "sgd", "lr": 0.1}
ADAM = {"name": "adam", "lr": 0.1}
ALL = {"state": "disk", "weights": "disk"}


# --- closed forms ---------------------------------------------------------------------------------


def test_the_forms_by_hand() -> None:
    """The closed forms equal a calculation by hand: LeNet in layer units, two ranks, Adam with two
    state tensors."""
    units = units_of(model("lenet"), 0, 2)
    part, most = sum(u.length for u in units) // 2, max(u.length for u in units) // 2
    host = estimate_offload_footprint(units, 2, Offload(state="host", weights="host"), 2)
    assert (host.host, host.disk, host.device_buffer) == (3 * part, 0, 2 * most)
    disk = estimate_offload_footprint(units, 2, Offload(**ALL), 2)
    assert (disk.host, disk.disk) == (2 * 3 * most, 3 * part)
    assert estimate_offload_footprint(units, 2, Offload(**ALL, overlap=False), 2).host == 3 * most
    mixed = estimate_offload_footprint(units, 2, Offload(state="host", weights="disk"), 2)
    assert (mixed.host, mixed.disk) == (2 * part + 2 * most, part)
    assert disk.largest == 2 * most
    three = estimate_offload_volume(units, 2, Offload(**ALL), 2, rounds=3)
    first, last = units[0].length // 2, units[-1].length // 2
    # Each of three backward passes begins with what is there, and two of the forward passes.
    weights = 3 * (2 * part - last) - 2 * first + part
    assert (three.to_device, three.to_host) == (2 * part + weights, 3 * part)
    assert (three.read, three.written) == (three.to_device, three.to_host)
    state = estimate_offload_volume(units, 2, Offload(state="host"), 2, rounds=3, updates=5)
    assert (state.to_device, state.to_host, state.read, state.written) == (
        10 * part,
        10 * part,
        0,
        0,
    )


# --- what arms may ask for ------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "words"), [
    ({"offload": {}}, "offload leaves everything on the device; set state = host or disk"),
    ({"offload": {"state": "ssd"}}, "offload.state"),
    ({"offload": {"place": "host"}}, "place"),
    ({"offload": {"state": "host", "overlap": False}}, "leave overlap out"),
    ({"offload": {"state": "host", "budget_bytes": -1}}, "budget_bytes"),
    ({"offload": {"state": "host"}, "world_size": 2, "zero": 1, "zero_lower": True,
      "precision": "bf16"}, "leave out zero_param_dtype"),
    ({"offload": ALL, "aggregation": {"overlap": True}}, "leave out aggregation.overlap"),
    ({"offload": {"state": "host"}, "optimizer": SGD}, "optimizer sgd has no state"),
    ({"offload": {"state": "host"}, "world_size": 2}, "set zero = 1, 2 or 3; received zero = 0"),
    ({"offload": ALL, "world_size": 2, "zero": 2}, "set zero = 3; received zero = 2"),
    ({"offload": ALL, "method": "single", "batch_size": 8}, "leave out method"),
    ({"offload": {"state": "host"}, "world_size": 2, "zero": 1, "split": {"data": 2}},
     "leave out split"),
    ({"offload": ALL, "aggregation": {"strategy": "replicas"}}, "leave out aggregation.strategy"),
    ({"offload": ALL, "kind": "collectives", "world_size": 2, "sizes": [8],
      "strategies": ["ring"]}, "leave out kind"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make_arm(**{"optimizer": ADAM, **settings})


def test_the_rule_is_that_of_the_arm_that_keeps_all() -> None:
    away = {"offload": ALL, "aggregation": {"bucket_bytes": 0}}
    arms = {
        "both": make_arm(optimizer=ADAM, **away),
        "plain": make_arm(optimizer=ADAM),
        "zero": make_arm(optimizer=ADAM, world_size=2, zero=3, **away),
    }
    contrast = ConfigDiff(arms)
    assert baseline_of("both", contrast) == "plain"
    assert baseline_of("plain", contrast) is None
    assert single_process_arm("zero", contrast) == "plain"
    assert arms["both"].sharding.stage == 3
    assert make_arm(optimizer=ADAM, offload={"state": "host"}).sharding.stage == 1


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "offload.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def finished_run(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("offload") / "out"
    code, summary = run(lab, out)
    assert code == 0, summary
    return out, {trial["arm"]: trial for trial in summary["trials"]}


@pytest.mark.whole
def test_every_bit_is_that_of_the_arm_that_keeps_all(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, trials = finished_run
    assert {trial["status"] for trial in trials.values()} == {"ok"}
    name = "numpy/seed0/weights.safetensors"
    own = {arm: (out / "trials" / arm / name).read_bytes() for arm in ARMS}
    for arm in ("host", "disk", "weights", "both", "serial"):
        assert own[arm] == own["device"], arm
    assert own["bf16-all"] == own["bf16"]
    assert own["bf16"] != own["device"]


@pytest.mark.whole
def test_each_is_held_against_the_arm_that_keeps_all(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, _ = finished_run
    serial = strict((out / "parity.json").read_text())["serial"]
    judged = {c["arm"]: (c["against"], c["verdict"]) for c in serial}
    equal = ("host", "disk", "weights", "both", "serial", "zero1", "zero3")
    assert judged.items() >= dict.fromkeys(equal, ("device", "equal")).items()
    assert judged["bf16-all"] == ("bf16", "equal")


@pytest.mark.whole
def test_the_records_are_the_closed_form(finished_run: tuple[Path, dict[str, Any]]) -> None:
    _, trials = finished_run
    assert "offload" not in trials["device"]
    for arm in ARMS:
        if "offload" not in ARMS[arm]:
            continue
        settings = make_arm(**trials_settings(arm))
        n, asked = settings.world_size, settings.offload
        assert asked is not None
        units = units_of(model("lenet"), 0, n)
        held, form = (
            estimate_offload_footprint(units, n, asked, 2),
            estimate_offload_volume(units, n, asked, 2, rounds=8, updates=8),
        )
        ranks = trials[arm]["offload"]
        assert len(ranks) == n
        for rank in ranks:
            assert (rank["updates"], rank["rounds"]) == (8, 8)
            assert (rank["host"], rank["disk"]) == (8 * held.host, 8 * held.disk)
            assert rank["to_device"] == 8 * form.to_device
            assert rank["to_host"] == 8 * form.to_host
            assert (rank["read"], rank["written"]) == (8 * form.read, 8 * form.written)


def trials_settings(arm: str) -> dict[str, Any]:
    import tomllib

    settings: dict[str, Any] = tomllib.loads(TOML)["arms"][arm]
    return settings


@pytest.mark.whole
def test_no_file_is_left(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    names = [
        {p.name for p in (out / "trials" / a / "numpy/seed0").iterdir()} for a in ("device", "both")
    ]
    assert names[0] == names[1]


@pytest.mark.whole
def test_the_page_tells_where_the_bytes_are(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    for lang, exact, equal in (
        (
            "en",
            "Bytes in each place and bytes moved equal the closed form exactly in all 8 rows.",
            "Offloaded against kept on the device: 8 of 8 comparisons equal within rounding.",
        ),
        (
            "zh",
            "全部 8 行中，各处保存的和搬运的字节数与闭式逐字节相等。",
            "卸载与留在设备上对照：8 项比较中有 8 项在舍入范围内相等。",
        ),
    ):
        told = findings_by_key(out, lang)
        assert told["offload.exact"] == [exact]
        assert told["offload.equal"] == [equal]
        assert "device_memory.off" not in told
        times = told.get("offload.hidden", []) + told.get("offload.nothing", [])
        assert len(times) == 4
        assert len(told["offload.waited"]) == 1
    found = tables(page(out))["offload"]
    rows = [
        dict(zip([c.key for c in found.columns], [c.text for c in line], strict=True))
        for line in found.cells
    ]
    assert {row["arm"] for row in rows} == {arm for arm in ARMS if "offload" in ARMS[arm]}
    serial = next(row for row in rows if row["arm"] == "serial")
    assert serial["offload"] == "state=disk, weights=disk, overlap=false"
    assert serial["on_disk"] == "1.19"  # 3 · 8 · 51,902 bytes
    assert serial["hidden"].startswith("0")


@pytest.mark.whole
@pytest.mark.parametrize("arm", ["zero1", "zero3"])
def test_an_interrupted_trial_goes_on(lab: Path, tmp_path: Path, arm: str) -> None:
    words = ("--set", f"arms.{arm}.updates=300", "--set", "data.test=1")
    goes_on_when_interrupted(lab, tmp_path, arm, *words)


def test_what_is_not_said_stands_in_no_plan(lab: Path) -> None:
    described = load(str(lab), arms=["both", "device"]).describe()["arms"]
    assert "offload" not in described["device"]
    assert described["both"]["offload"]["weights"] == "disk"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "offload.budget_bytes=1000",
            "offload.budget_bytes = 1,000, but host memory has to hold "
            "1,154,880 bytes, and 384,960 at once for the largest of 4 units; raise it, or set "
            "overlap = false",
        ),
        ('offload.state="dsk"', "arms.both.offload.state"),
        ("offload.buget_bytes=1", "did you mean 'budget_bytes'?"),
        ('model="gpt"', "gpt"),
    ],
)
def test_bad_input_is_one_line(lab: Path, tmp_path: Path, override: str, words: str) -> None:
    done = dualml(
        "run",
        lab,
        "--backend",
        "numpy",
        "--arm",
        "both",
        "--out",
        tmp_path / "o",
        "--set",
        f"arms.both.{override}",
    )
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("dualml: ")
    assert words in line


def test_a_budget_that_suffices_is_accepted(lab: Path, tmp_path: Path) -> None:
    code, summary = run(
        lab,
        tmp_path / "o",
        "--arm",
        "both",
        "--set",
        "arms.both.offload.budget_bytes=1154880",
        "--no-report",
    )
    assert code == 0, summary


@pytest.mark.whole
def test_a_file_that_may_not_be_so_large_fails_its_trial(lab: Path, tmp_path: Path) -> None:
    """A file limit of 800 kB is reported: LeNet's state in float64 has 830 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, hard))
    try:
        code, summary = run(lab, tmp_path / "o", "--arm", "disk", "--no-report")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    (trial,) = summary["trials"]
    assert trial["status"] == "failed"
    assert "offload needs a file of 830,432 bytes in " in trial["reason"]
    assert "a file may have 800,000 bytes here (ulimit -f)" in trial["reason"]
    left = {path.name for path in (tmp_path / "o/trials/disk/numpy/seed0").iterdir()}
    assert not any("tmp" in name for name in left), left
