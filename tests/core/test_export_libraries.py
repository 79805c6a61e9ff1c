"""Export targets with large libraries, read back by those libraries (tox environment `exports`)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_run
import pytest

from dualml.common.errors import UserError
from dualml.experiment.store.load import load
from dualml.experiment.store.records import read_records
from dualml.experiment.store.table import records, trials
from dualml.report.export import export

pytestmark = pytest.mark.whole
#: Block size of LevelDB's log format in bytes.
BLOCK = 2**15
ARMS = {"sgd": fake_run.MAIN["sgd"] | {"updates": 20, "epochs": 0.2}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = fake_run.make_run(
        tmp_path_factory.mktemp("run"),
        arms=ARMS,
        backends=["torch", "mindspore"],
        failed=("sgd", "mindspore", 1),
    )
    (made / "report.html").write_text("<p>the report</p>")
    return made


def values(folder: Path, place: str) -> dict[str, list[tuple[int, float]]]:
    """Return metric → update and value, as recorded."""
    return {
        name: list(zip(map(int, curve.step), curve.value.tolist(), strict=True))
        for name, curve in read_records(folder / "trials" / place).items()
    }


def test_parquet(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow")
    export([folder], "parquet", tmp_path / "out")
    run = load([folder])
    for name, table in (("records", records(run)), ("trials", trials(run))):
        read = parquet.read_table(tmp_path / "out" / f"{name}.parquet")
        assert read.to_pydict() == table
    kinds = {
        field.name: str(field.type)
        for field in parquet.read_schema(tmp_path / "out" / "records.parquet")
    }
    assert (kinds["value"], kinds["step"], kinds["metric"]) == ("double", "int64", "string")


def test_mlflow(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="no mlflow")
    pytest.importorskip("sqlalchemy", reason="no sqlalchemy")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = export([folder], "mlflow", tmp_path / "out").where
    assert uri == f"sqlite:///{tmp_path}/out/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("lab1").experiment_id
    runs = {r.info.run_name: r for r in client.search_runs([experiment])}
    whole = runs.pop(folder.name)
    (artifact,) = client.list_artifacts(whole.info.run_id)
    kept = tmp_path / "out/artifacts" / whole.info.run_id / "artifacts" / artifact.path
    assert kept.read_text() == "<p>the report</p>"
    assert {*runs} == {f"sgd/{b}/seed{s}" for b in ("torch", "mindspore") for s in (0, 1)}
    for name, its in runs.items():
        for metric, points in values(folder, name).items():
            history = client.get_metric_history(its.info.run_id, metric)
            assert sorted((m.step, m.value) for m in history) == points
        assert its.data.params["optimizer.lr"] == "0.05"
        assert its.data.tags["mlflow.parentRunId"] == whole.info.run_id
        assert its.data.tags["plan_hash"] == load([folder]).meta["plan_hash"]
    broken = runs["sgd/mindspore/seed1"]
    assert broken.info.status == "FAILED"
    assert broken.data.tags["reason"] == fake_run.REASON
    assert runs["sgd/torch/seed0"].data.tags["verdict"] == "equal"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # a store that is there is added to
    export([folder], "mlflow")
    assert len(client.search_runs([experiment])) == 2 * (1 + len(runs))
    with pytest.raises(UserError, match=r"MLFLOW_TRACKING_URI says .* leave out --out"):
        export([folder], "mlflow", tmp_path / "another")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://x")
    with pytest.raises(UserError, match="mlflow at nowhere://x: "):
        export([folder], "mlflow")


def logged(path: Path) -> Iterator[bytes]:
    """Return the entries of a file in LevelDB's log format, after wandb's seven-byte header."""
    content, at, entry = path.read_bytes(), 7, b""
    while at < len(content):
        if (room := BLOCK - at % BLOCK) < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        entry += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield entry
            entry = b""


def read_wandb(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return settings, metric rows and summary of a run that wandb wrote to disk."""
    from wandb.proto.wandb_internal_pb2 import Record

    def values(items: Any) -> dict[str, Any]:
        return {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}

    settings, history, summary = dict[str, Any](), list[dict[str, Any]](), dict[str, Any]()
    for entry in logged(path):
        record = Record.FromString(entry)
        settings |= values(record.run.config.update) | values(record.config.update)
        history += [values(record.history.item)] if record.history.item else []
        summary |= values(record.summary.update)
    return settings, history, summary


def test_wandb(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="no wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    export([folder], "wandb", tmp_path / "out")
    files = sorted((tmp_path / "out").rglob("*.wandb"))
    assert len(files) == 4
    seen = set()
    for path in files:
        settings, history, summary = read_wandb(path)
        name = f"{settings['arm']}/{settings['backend']}/seed{settings['seed']}"
        seen.add(name)
        for metric, points in values(folder, name).items():
            assert [(row["_step"], row[metric]) for row in history if metric in row] == points
        assert summary["plan_hash"] == load([folder]).meta["plan_hash"]
        assert summary["status"] == ("failed" if name == "sgd/mindspore/seed1" else "ok")
    assert len(seen) == 4
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "no netrc"))
    with pytest.raises(UserError, match=r"wandb: .*(?i:login|api.key)"):
        export([folder], "wandb", tmp_path / "online", online=True)
    assert not (tmp_path / "online").exists()
