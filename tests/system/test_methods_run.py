"""Methods and launchers in whole runs: the same samples, the same updates, nothing left behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import LaunchedRun, dualml, settings, trials

from dualml.algorithms.model import model

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ARM = """
[arms.{name}]
optimizer = {{ name = "sgd", lr = 0.1, momentum = 0.9 }}
batch_size = 60
updates = {updates}
{more}
"""


def file(folder: Path, arms: dict[str, str], updates: int = 30) -> Path:
    """Write an experiment on few images; arm → its further lines."""
    folder.mkdir(parents=True, exist_ok=True)
    text = 'name = "ways"\nmodel = "softmax"\ntitle = { en = "x" }\ndata = { name = "digits" }\n'
    text += "".join(ARM.format(name=n, more=m, updates=updates) for n, m in arms.items())
    path = folder / "ways.toml"
    path.write_text(text)
    return path


def two_rank_arm(method: str, launcher: str = "") -> str:
    lines = [f'method = "{method}"', "world_size = 2"]
    return "\n".join([*lines, f'launcher = "{launcher}"'] if launcher else lines)


ARMS = {
    "torch": {
        "single": "",
        "loop": 'method = "single"',
        "ddp": two_rank_arm("ddp"),
        "torchrun": two_rank_arm("ddp", "torchrun"),
        "spawn": two_rank_arm("ddp", "spawn"),
        "launch": two_rank_arm("ddp", "torch.distributed.launch"),
        "fsdp": two_rank_arm("fsdp"),
        "fsdp_layers": two_rank_arm("fsdp_layers"),
    },
    "mindspore": {
        "single": "",
        "loop": 'method = "single"',
        "model": 'method = "model_train"',
        "reducer": two_rank_arm("reducer"),
        "msrun": two_rank_arm("reducer", "msrun"),
    },
}
#: What a rank sends of the gradients, as a multiple of the model's bytes / 2; MindSpore's own sum
#: by gathering sends twice as much as a ring.
SENT = {"torch": {"ddp": 2, "torchrun": 2, "spawn": 2, "launch": 2, "fsdp": 3, "fsdp_layers": 4}}


@pytest.fixture(scope="module", params=ARMS)
def finished_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    backend = request.param
    require(backend)
    folder = tmp_path_factory.mktemp(backend)
    path, out = file(folder, ARMS[backend]), folder / "out"
    with LaunchedRun(dualml("run", path, "--backend", backend, "--out", out), folder) as run:
        assert run.end(280) == 0, run.text()
    return backend, out


def test_every_way_trains_what_one_process_trains(finished_run: Any) -> None:
    backend, out = finished_run
    parity = json.loads((out / "parity.json").read_text())
    verdicts = {s["arm"]: s["verdict"] for s in parity["serial"]}
    assert verdicts == dict.fromkeys(list(ARMS[backend])[1:], "equal")


def test_samples_of_each_rank_and_what_it_sends(finished_run: Any) -> None:
    backend, out = finished_run
    found = trials(out)
    for arm, trial in found.items():
        counts = [each["n"] for each in trial["samples"]]
        assert sum(counts) == trial["sample_gradients"], arm
        assert len(counts) == trial.get("world_size", 1)
        assert len(trial["step_s"]) == 3
        assert trial["step_s"] == sorted(trial["step_s"])
        assert ("sent_bytes" in trial) == (len(counts) > 1)
    ranks = [t["samples"] for t in found.values() if len(t["samples"]) == 2]
    assert all(samples == ranks[0] for samples in ranks)  # whoever started them
    assert found["loop"]["samples"] == found["single"]["samples"]
    for arm, moved in SENT.get(backend, {}).items():
        closed = moved / 2 * model("softmax").nbytes()
        assert 0.98 * closed < found[arm]["sent_bytes"] < 1.1 * closed + 1000, arm


def test_the_page_has_the_methods_and_their_code(finished_run: Any) -> None:
    backend, out = finished_run
    page = (out / "report.html").read_text()
    assert 'id="table-methods"' in page
    assert 'id="table-others"' not in page  # all have the samples that the plan deals to them
    package = {"torch": "dualml_torch", "mindspore": "dualml_ms"}[backend]
    assert f"{package}/experiment/methods/single.py" in page


# --- the experiment that is shipped, on the sentences that dualml makes itself --------------------

#: Arms of ``experiments/methods.toml``: those equal to ``single``, and the others.
SHIPPED = {
    "torch": (["ddp"], ["bf16", "torch-bf16", "own-batches"]),
    "mindspore": (["ms-model"], []),
}
#: Samples; 35 are left for the last batch.
FEW = settings(data__train=355, data__test=120, data__validation=60, evaluation__train_samples=100)


COMPILES = pytest.mark.slow("MindSpore compiles for most of a minute; its methods are run above")


@pytest.fixture(scope="module", params=["torch", pytest.param("mindspore", marks=COMPILES)])
def shipped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    backend = request.param
    require(backend)
    folder = tmp_path_factory.mktemp("shipped")
    out, (equal, others) = folder / "out", SHIPPED[backend]
    arms = [word for arm in ("single", *equal, *others) for word in ("--arm", arm)]
    words = ["run", "methods", "--backend", backend, "--seed", 0, "--out", out, *arms, *FEW]
    with pytest.MonkeyPatch.context() as environ:
        environ.delenv("DUALML_DATA", raising=False)
        with LaunchedRun(dualml(*words), folder) as run:
            assert run.end(280) == 0, run.text()
    return backend, out


def test_the_shipped_arms_train_on_the_data_that_stand_in(shipped: Any) -> None:
    backend, out = shipped
    content = json.loads((out / "run.json").read_text())
    assert content["data"]["name"] == "feelings"
    assert "emotion" in content["data"]["notice"]["en"]
    found, (equal, others) = trials(out), SHIPPED[backend]
    assert set(found) == {"single", *equal, *others}
    assert {trial["status"] for trial in found.values()} == {"ok"}
    assert all(trial["samples"] and trial["confusion"] for trial in found.values())


def test_the_verdicts_of_the_shipped_arms(shipped: Any) -> None:
    backend, out = shipped
    parity = json.loads((out / "parity.json").read_text())
    equal, others = SHIPPED[backend]
    verdicts = {s["arm"]: s["verdict"] for s in parity["serial"]}
    lower = [arm for arm in others if "bf16" in arm]  # one seed decides nothing over the seeds
    assert verdicts == dict.fromkeys(equal, "equal") | dict.fromkeys(lower)
    own = {s["arm"]: (s["against"], s["verdict"]) for s in parity.get("lowered", [])}
    assert own == ({"torch-bf16": ("bf16", "equal")} if lower else {})


def test_the_report_of_the_shipped_arms_has_the_table(shipped: Any) -> None:
    backend, out = shipped
    page = (out / "report.html").read_text()

    def table(name: str) -> str:
        assert f'id="table-{name}"' in page, name
        return page[page.index(f'id="table-{name}"') :].partition("</table>")[0]

    equal, _ = SHIPPED[backend]
    assert all(f">{arm}<" in table("methods") for arm in ("single", *equal))
    assert ("18/35" in page) == ("ddp" in equal)
    if backend == "torch":
        assert ">own-batches<" not in table("methods")
        assert "batches of 128 in place of 64" in table("others")
        assert "torch-bf16" in table("lowered")


LOW = {"torch": "amp_fp16", "mindspore": "amp_o2"}


@pytest.mark.parametrize("backend", LOW)
def test_updates_that_an_engine_skips_are_recorded(backend: str, tmp_path: Path) -> None:
    """Updates that an engine skips are recorded: one image with a confident wrong prediction and a
    loss scale of 2¹⁶ overflows float16."""
    require(backend)
    arms = {"only": f'method = "{LOW[backend]}"'}
    path, out = file(tmp_path, arms, updates=40), tmp_path / "out"
    text = path.read_text().replace("size = 60", "size = 1")
    path.write_text(text.replace("lr = 0.1, momentum = 0.9", "lr = 0.5"))
    with LaunchedRun(dualml("run", path, "--backend", backend, "--out", out), tmp_path) as run:
        assert run.end(200) == 0, run.text()
    scale = trials(out)["only"]["loss_scale"]
    assert scale["skipped"] >= 1
    assert scale["last"] == 2.0 ** (16 - scale["skipped"])
    assert f"In only on {backend} {scale['skipped']} update" in (out / "report.md").read_text()


@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_ranks_of_a_launcher_go_with_their_owner(launcher: str, tmp_path: Path) -> None:
    require("torch")
    out = tmp_path / "out"
    path = file(tmp_path, {"only": two_rank_arm("ddp", launcher)}, updates=200_000)
    words = ["--backend", "torch", "--out", out, "--no-report"]
    records = out / "trials/only/torch/seed0/rank0.jsonl"
    with LaunchedRun(dualml("run", path, *words), tmp_path) as run:
        run.wait_for(lambda: records.exists() and records.stat().st_size > 1000)
        run.wait_for(lambda: "seed 0: training" in run.text())  # what they say comes at once
        run.process.send_signal(signal.SIGINT)
        assert run.end(60) == 130, run.text()
    with LaunchedRun(dualml("run", "--resume", out, "--no-report"), tmp_path) as again:
        before = records.stat().st_mtime_ns
        again.wait_for(lambda: records.stat().st_mtime_ns != before)
        again.process.send_signal(signal.SIGKILL)
        again.process.wait(timeout=5)
        again.assert_nothing_left(20)


def test_a_rank_that_is_killed_under_its_launcher_ends_the_trial(tmp_path: Path) -> None:
    require("torch")
    out = tmp_path / "out"
    path = file(tmp_path, {"only": two_rank_arm("ddp", "torchrun")}, updates=200_000)
    words = ["--backend", "torch", "--out", out, "--no-report"]
    records = out / "trials/only/torch/seed0/rank0.jsonl"
    with LaunchedRun(dualml("run", path, *words), tmp_path) as run:
        run.wait_for(lambda: records.exists() and records.stat().st_size > 1000)
        workers = [
            p for p in run.marked_processes() if "dualml.runner.worker.hosted" in p.cmdline()
        ]
        last = [
            p
            for p in workers
            if p.environ().get("RANK") == "1" and "--standalone" not in p.cmdline()
        ]
        last[0].send_signal(signal.SIGKILL)
        assert run.end(60) == 1, run.text()
        assert "Traceback" not in run.text()
    assert trials(out)["only"]["status"] == "failed"
