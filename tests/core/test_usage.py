"""Resource usage of ranks: samples of real runs, their summary, and live views."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import dualml
from terminals import OnTerminal

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.usage import (
    Sample,
    encode_sample,
    last_samples,
    read_usage,
    summarize_samples,
    usage_path,
)
from dualml.launch.usage import devices, machine, sampler
from dualml.launch.usage.sampler import sample_usage
from dualml.report.live_usage import active_ranks, tables
from dualml.report.topics import usage as topic

TOML = """
name = "watched"
model = "softmax"
title = { en = "Watched", zh = "看" }
data = { name = "digits", train = 200, test = 20 }
evaluation = { train_samples = 10 }
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
updates = 30
[arms.two]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
updates = 30
world_size = 2
"""


def sample(at: float, **changed: Any) -> Sample:
    usual = {
        "at": at,
        "host": "a",
        "pid": 1,
        "cpu_s": 0.0,
        "memory": 100,
        "cores": 4,
        "used": 7,
        "sampling_s": 0.0,
    }
    return Sample(**{**usual, **changed})


# --- the rank's side ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "lab.toml").write_text(TOML)
    ended = dualml("run", folder / "lab.toml", "--backend", "numpy", "--out", folder / "run")
    assert ended.returncode == 0, ended.stderr
    return folder / "run"


@pytest.mark.whole
def test_every_process_of_a_run_leaves_samples(run: Path) -> None:
    for arm in ("one", "two"):
        place = run / f"trials/{arm}/numpy/seed0"
        found = read_usage(place, 0)
        assert len(found) >= 2, "one at the beginning, one at the end"
        assert found[-1].done == found[-1].total
        assert [sample.last for sample in found] == [False] * (len(found) - 1) + [True]
        assert found[-1].cpu_s > found[0].cpu_s >= 0
        assert found[-1].memory > 2**20
        assert found[-1].cores == psutil.cpu_count()
        assert (found[-1].collectives_s or 0) > 0 if arm == "two" else not found[-1].collectives_s
        assert not usage_path(place, 1).exists(), "the ranks are threads of one process"


@pytest.mark.whole
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_report_has_the_chapter(run: Path, lang: str) -> None:
    words = Messages(lang)
    (table,) = topic.TOPIC.evidence(load([run]), words)
    assert [row[0] for row in table.rows] == ["one", "two"]
    assert [c.key for c in table.columns][:3] == ["arm", "backend", "host"]
    assert {"cpu", "memory", "collectives"} <= {c.key for c in table.columns}
    assert topic.TOPIC.findings(load([run]), words)[-1].key == "usage.cost"


def test_looking_takes_at_most_a_hundredth_of_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling takes at most a hundredth of a core, however expensive a single sample is."""
    look = machine.MachineSampler.sample

    def dear(self: machine.MachineSampler) -> Any:
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        return look(self)

    monkeypatch.setattr(machine.MachineSampler, "sample", dear)
    monkeypatch.setattr(sampler, "EVERY_S", 0.01)
    begin = time.monotonic()
    with sample_usage(tmp_path, 0, "cpu", None) as watching:
        time.sleep(7)
    seconds = time.monotonic() - begin
    assert watching.sample_count >= 3
    # The first look and the last are not spread over anything.
    assert watching.spent * (watching.sample_count - 2) / watching.sample_count < 0.01 * seconds
    found = read_usage(tmp_path, 0)
    assert len(found) == watching.sample_count
    assert found[-1].sampling_s > 0.01


def test_the_samples_of_a_long_trial_are_bounded(tmp_path: Path) -> None:
    watching = sampler.UsageSampler(tmp_path, 0, "cpu", None)
    assert watching.pause() == sampler.EVERY_S
    watching.begin -= 24 * 3600
    assert watching.pause() == pytest.approx(24 * 3600 / sampler.MAX_SAMPLES, rel=0.01)


def test_a_full_disk_ends_the_watching_alone(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    with sample_usage(place, 0, "cpu", None) as watching:
        time.sleep(0.1)
    assert watching.sample_count == 0


def test_work_shows_in_the_machine() -> None:
    its, stop = machine.MachineSampler(), threading.Event()
    busy = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)], daemon=True)
    busy.start()
    time.sleep(1.0)
    told = its.sample()
    stop.set()
    busy.join(10)
    cores = psutil.cpu_count()
    assert told["busy"] is not None
    assert cores is not None
    assert 0.2 < told["busy"] <= cores
    assert 0 < (told["used"] or 0) < psutil.virtual_memory().total


def test_watts_are_microjoules_by_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watts are microjoules over seconds, as Linux counts them: packages, and parts that they
    include."""
    monkeypatch.setattr(machine, "RAPL", tmp_path)
    for name, joules in {"intel-rapl:0": 5, "intel-rapl:0:0": 3, "intel-rapl:1": 7}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{joules}000000\n")
    its = machine.MachineSampler()
    assert machine.read_energy() == {"intel-rapl:0": 5_000_000, "intel-rapl:1": 7_000_000}
    (tmp_path / "intel-rapl:1/energy_uj").write_text("57000000\n")
    its._at -= 10  # ten seconds ago
    assert its.sample()["power"] == pytest.approx(5, rel=0.01)
    (tmp_path / "intel-rapl:1/energy_uj").write_text("1\n")  # it began again
    assert its.sample()["power"] is None


# --- devices --------------------------------------------------------------------------------------

#: As npu-smi 24.1.rc1 prints it for 910B3 (vllm-ascend's documentation), 24.1.rc3.7 for 910C, two
#: chips each (an issue of vllm-ascend), and 25.5.2 for 910B, whose memory is no HBM.
B3 = """
| npu-smi 24.1.rc1.b030            Version: 24.1.rc1.b030                                        |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 101.8       43                0    / 0             |
| 0                         | 0000:C1:00.0  | 12          0    / 0          3318 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 92.0        39                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3314/ 65536          |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
"""
C = """
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 1     Ascend910           | OK            | 186.1       36                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3413 / 65536         |
+------------------------------------------------------------------------------------------------+
| 1     Ascend910           | OK            | -           36                0    / 0             |
| 1     3                   | 0000:9B:00.0  | 0           0    / 0          3185 / 65536         |
"""
B = """
| 0     910B                | OK            | 70.3        38                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           1103 / 13552      0    / 32768         |
| 1     310P3               | OK            | NA          38                0    / 0             |
| 0                         | 0000:81:00.0  | 7           1483 / 15665                           |
"""


def test_what_npu_smi_prints_is_read() -> None:
    told = {
        n: (d.name, d.utilisation, d.memory, d.power, d.temperature)
        for text in (B3, C)
        for n, d in devices.parse_npu_smi(text).items()
    }
    assert told == {
        0: ("910B3", 0.12, 3318 * 2**20, 101.8, 43.0),
        1: ("910B3", 0.0, 3314 * 2**20, 92.0, 39.0),
        2: ("Ascend910", 0.0, 3413 * 2**20, 186.1, 36.0),
        3: ("Ascend910", 0.0, 3185 * 2**20, None, 36.0),
    }
    without = devices.parse_npu_smi(B)
    assert without[1].memory == 1483 * 2**20
    assert without[1].power is None
    assert not devices.parse_npu_smi("npu-smi: command failed")


def test_a_command_of_that_name_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "npu-smi"
    command.write_text(f"#!/bin/sh\ncat <<'END'{B3}END\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    look = devices.device_sampler("ascend:1")
    assert look is not None
    assert (look() or sample(0)).power == 92.0
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0")
    assert (look() or sample(0)).power == 101.8
    command.write_text("#!/bin/sh\nexit 1\n")
    assert look() is None


class NVMLError(Exception):
    """The error class of NVML's library."""


def nvml(**told: Any) -> types.SimpleNamespace:
    """A fake of the used part of NVML, with a device that reports only some values."""

    def refuse(*_: Any) -> Any:
        raise NVMLError("Not Supported")

    def constant(value: Any) -> Any:
        return lambda *_: value

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: f"GPU {handle}",
        nvmlDeviceGetUtilizationRates=constant(types.SimpleNamespace(gpu=37)),
        nvmlDeviceGetMemoryInfo=constant(types.SimpleNamespace(used=5 * 2**30)),
        nvmlDeviceGetPowerUsage=constant(told["milliwatts"]) if "milliwatts" in told else refuse,
        nvmlDeviceGetTemperature=constant(61),
    )


def test_a_gpu_tells_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(milliwatts=123456))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7f")
    first, second = devices.device_sampler("cuda:0"), devices.device_sampler("cuda:1")
    assert first is not None
    assert second is not None
    told = first()
    assert told is not None
    assert (told.name, told.utilisation, told.memory) == ("GPU 2", 0.37, 5 * 2**30)
    assert (told.power, told.temperature) == (123.456, 61)
    assert (second() or told).name == "GPU GPU-7f"
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    silent = devices.device_sampler("gpu:0")
    assert silent is not None
    assert (silent() or told).power is None


def test_without_a_driver_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert devices.device_sampler("cuda:0") is None
    assert devices.device_sampler("cpu") is None


# --- what samples come to -------------------------------------------------------------------------


def test_means_go_by_time_and_processes_by_themselves() -> None:
    found = [
        sample(10, cpu_s=1.0, sent=100, busy=9.0),
        sample(11, cpu_s=2.0, sent=1100, busy=1.0, memory=300),
        sample(14, cpu_s=2.0, sent=1100, busy=3.0),
        # Started again, an hour later.
        sample(3614, pid=2, cpu_s=0.5, sent=0, busy=4.0),
        sample(3615, pid=2, cpu_s=0.9, sent=2000, busy=2.0, sampling_s=0.01),
    ]
    told = summarize_samples(found)
    assert told is not None
    assert told.seconds == 5
    assert told.cpu == pytest.approx((1.0 + 0.0 + 0.4) / 5)
    assert told.cpu_peak == 1.0
    assert told.sent == pytest.approx(3000 / 5)
    assert told.busy == pytest.approx((1 + 9 + 2) / 5)
    assert (told.memory, told.received, told.device) == (300, None, None)
    assert told.sampling == pytest.approx(0.01 / 5)
    assert summarize_samples(found[:1]) is None
    assert summarize_samples([]) is None


def test_a_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    path = usage_path(tmp_path, 0)
    whole = b"".join(encode_sample(sample(at, phase="train" * 30)) for at in range(100))
    path.write_bytes(whole + encode_sample(sample(100))[:40])
    assert len(read_usage(tmp_path, 0)) == 100
    last = last_samples(path)
    assert 2 < len(last) < 100
    assert last[-1].at == 99
    assert last_samples(tmp_path / "none") == []


# --- who looks on ---------------------------------------------------------------------------------


def rank_at_work(run: Path, rank: int, arm: str = "one", **last: Any) -> None:
    place = run / f"trials/{arm}/torch/seed0"
    place.mkdir(parents=True, exist_ok=True)
    now = time.time()
    lines = [sample(now - 2, sent=0), sample(now, cpu_s=3.0, sent=4_000_000, **last)]
    usage_path(place, rank).write_bytes(b"".join(map(encode_sample, lines)))


def test_ranks_at_work_are_shown_each_with_its_machine(tmp_path: Path) -> None:
    rank_at_work(tmp_path, 0, phase="train", done=5, total=9)
    rank_at_work(tmp_path, 1, host="b")
    old = tmp_path / "trials/one/torch/seed0/rank2.usage.jsonl"
    old.write_bytes(encode_sample(sample(0)))
    os.utime(old, (0, 0))
    seen = active_ranks(tmp_path)
    assert [(s.rank, s.now.host) for s in seen] == [(0, "a"), (1, "b")]
    assert seen[0].rate("cpu_s") == pytest.approx(1.5, rel=0.01)
    ranks, machines = tables(seen, Messages("en"))
    assert [row[2] for row in ranks.rows] == ["a", "b"]
    assert ranks.rows[0][3] == "train 5/9"
    keys = [column.key for column in ranks.columns]
    assert ranks.rows[0][keys.index("sent")] == "2"
    assert "device_busy" not in keys, "no rank tells of one"
    assert [row[0] for row in machines.rows] == ["a", "b"]
    assert list(tables([], Messages("en"))) == []


def test_a_rank_whose_trial_is_over_is_shown_no_more(tmp_path: Path) -> None:
    rank_at_work(tmp_path, 0, last=True)
    assert len(active_ranks(tmp_path)) == 1, "the next trial may begin"
    path = tmp_path / "trials/one/torch/seed0/rank0.usage.jsonl"
    path.write_bytes(encode_sample(sample(time.time() - 10, last=True)))
    assert active_ranks(tmp_path) == []
    path.write_bytes(encode_sample(sample(time.time() - 10)))
    assert len(active_ranks(tmp_path)) == 1


def test_a_rank_is_where_it_wrote_last(tmp_path: Path) -> None:
    rank_at_work(tmp_path, 0, arm="earlier")
    before = time.time() - 20
    os.utime(tmp_path / "trials/earlier/torch/seed0/rank0.usage.jsonl", (before, before))
    rank_at_work(tmp_path, 0, arm="now")
    assert [s.trial[0] for s in active_ranks(tmp_path)] == ["now"]


def test_top_prints_what_it_sees(tmp_path: Path) -> None:
    run = tmp_path / "runs/a"
    rank_at_work(run, 0)
    (run / "run.json").write_text("{}")
    ended = dualml("top", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (told,) = json.loads(ended.stdout)["ranks"]
    assert (told["run"], told["rank"], told["arm"]) == (str(run), 0, "one")
    assert told["cpu"] == pytest.approx(1.5, rel=0.01)
    shown = dualml("top", run, cwd=tmp_path)
    assert "one torch seed0" in " ".join(shown.stdout.split())
    none = dualml("top", "--lang", "zh", cwd=tmp_path / "runs")
    assert "没有正在工作的" in none.stdout


def test_top_watches_until_it_is_ended(tmp_path: Path) -> None:
    """`top` runs until it is ended, and leaves the terminal as it was."""
    rank_at_work(tmp_path, 0)
    (tmp_path / "run.json").write_text("{}")
    with OnTerminal("top", tmp_path, "--every", "0.2") as top:
        top.read_until(b"seed0", times=2)  # drawn, and drawn again
        top.process.send_signal(signal.SIGINT)
        assert top.wait(20) == 130
    assert b"Traceback" not in top.shown
    assert top.shown.rstrip().endswith(b"\x1b[?1049l"), "the terminal's own screen again"


@pytest.mark.parametrize("what", ["nowhere", "4711"])
def test_what_is_no_job_and_no_run_is_one_line(tmp_path: Path, what: str) -> None:
    ended = dualml("top", what, cwd=tmp_path)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert what in ended.stderr
