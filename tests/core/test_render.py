"""Files for Compose and Kubernetes, checked against the engines' published schemas."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import dualml, lab
from render_cases import REQUESTS, SCHEMAS, documents, make_request, request_, wrong

from dualml.runner.render import files, node
from dualml.runner.render.kinds import KINDS
from dualml.runner.render.kubernetes import files_pod, volume_claims
from dualml.runner.render.request import RenderRequest

__all__ = ["lab", "request_"]


def test_the_schemas_are_the_published_ones() -> None:
    sources = tomllib.loads((SCHEMAS / "sources.toml").read_text("utf-8"))
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(sources)
    for name, source in sources.items():
        content = (SCHEMAS / f"{name}.json").read_bytes()
        assert hashlib.sha256(content).hexdigest() == source["cut"], name
    assert sum(path.stat().st_size for path in SCHEMAS.glob("*.json")) < 400_000


def test_compose_takes_it(request_: RenderRequest) -> None:
    written = files.compose_files(request_)
    (document,) = documents(written["compose.yaml"])
    assert wrong(document, "compose") == []


@pytest.mark.parametrize("kind", KINDS)
def test_kubernetes_takes_it(request_: RenderRequest, kind: str) -> None:
    written = files.kubernetes_files(request_, kind)
    (together,) = documents(written["kustomization.yaml"])
    objects = [
        item for name in (*together["resources"], "files.yaml") for item in documents(written[name])
    ]
    assert len(objects) >= 4
    for item in objects:
        assert wrong(item) == []


def changed(document: Any, *path: str | int, to: Any) -> Any:
    """Return a copy with another value at a place; None removes it."""
    copied = copy.deepcopy(document)
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return copied


def test_the_schemas_notice() -> None:
    (document,) = documents(files.compose_files(make_request())["compose.yaml"])
    node = ("services", "node0")
    assert wrong(changed(document, *node, "imagee", to="x"), "compose")
    assert wrong(changed(document, *node, "deploy", "resources", "limits", "cpu", to=2), "compose")
    for kind, path in (
        (
            "trainjob",
            (
                "spec",
                "template",
                "spec",
                "replicatedJobs",
                0,
                "template",
                "spec",
                "template",
                "spec",
            ),
        ),
        ("pytorchjob", ("spec", "pytorchReplicaSpecs", "Master", "template", "spec")),
        ("volcano", ("spec", "tasks", 0, "template", "spec")),
    ):
        first = KINDS[kind].objects(make_request())[0]
        container = (*path, "containers", 0)
        assert wrong(first) == []
        assert wrong(changed(first, *container, "argument", to=["x"]))
        assert wrong(changed(first, *container, "args", to=[1]))
        assert wrong(changed(first, *container, "resources", "limits", "cpu", to="two"))
        assert wrong(changed(first, "metadata", "labels", to=["x"]))
        assert wrong(changed(first, "spec", "replicas", to=1))
    train = KINDS["trainjob"].objects(make_request())[1]
    assert wrong(changed(train, "spec", "trainer", "numNodes", to="2"))
    assert wrong(
        changed(volume_claims(make_request(), True)[0], "spec", "accessModes", to="ReadWriteOnce")
    )
    assert wrong(changed(files_pod(make_request()), "spec", "containers", 0, "name", to=7))


WRITTEN: dict[str, Callable[[RenderRequest], dict[str, str]]] = {
    "compose": files.compose_files,
    **{kind: lambda asked, kind=kind: files.kubernetes_files(asked, kind) for kind in KINDS},
}


@pytest.mark.parametrize("place", WRITTEN)
def test_the_token_is_in_one_file_of_the_user_alone(tmp_path: Path, place: str) -> None:
    asked = make_request()
    files.write_files(tmp_path / "out", WRITTEN[place](asked))
    holders = [path for path in (tmp_path / "out").iterdir() if asked.token in path.read_text()]
    assert [path.suffix or path.name for path in holders] == [".env"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    assert asked.token not in repr(asked)
    assert make_request().token != asked.token
    alone = WRITTEN[place](REQUESTS["one"])
    assert not [name for name in alone if name.endswith(".env")]


def test_the_run_folder_is_on_the_first_node_only() -> None:
    (document,) = documents(files.compose_files(make_request(nodes=3))["compose.yaml"])
    having = [
        name
        for name, service in document["services"].items()
        if "runs" in [volume["source"] for volume in service["volumes"]]
    ]
    assert having == ["node0"]
    for kind, name in (("pytorchjob", "Master"), ("volcano", "first")):
        objects = yaml.safe_load(files.kubernetes_files(make_request(nodes=3), kind)["job.yaml"])
        spec = objects["spec"]
        pods = spec.get("pytorchReplicaSpecs") or {task["name"]: task for task in spec["tasks"]}
        having = [
            key
            for key, pod in pods.items()
            if "runs" in [volume["name"] for volume in pod["template"]["spec"]["volumes"]]
        ]
        assert having == [name]
    modes = {
        k: volume_claims(make_request(), v.shared)[0]["spec"]["accessModes"]
        for k, v in KINDS.items()
    }
    assert modes == {
        "trainjob": ["ReadWriteMany"],
        "pytorchjob": ["ReadWriteOnce"],
        "volcano": ["ReadWriteOnce"],
    }


def fill_variables(words: list[str], values: dict[str, str]) -> list[str]:
    """Expand variables as the kubelet does; Compose has no brackets, so nothing is left to
    expand."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1], match[0])

    return [re.sub(r"\$\$|\$\((\w+)\)", value, word) for word in words]


#: Kind → variables that it sets in each of three pods, and where these pods run.
NUMBERED: dict[str, list[tuple[dict[str, str], tuple[str | int, ...]]]] = {
    "trainjob": [
        (
            {"JOB_COMPLETION_INDEX": str(index)},
            ("template", "spec", "replicatedJobs", 0, "template", "spec"),
        )
        for index in range(3)
    ],
    "pytorchjob": [
        ({"RANK": str(rank)}, ("pytorchReplicaSpecs", "Worker" if rank else "Master"))
        for rank in range(3)
    ],
    "volcano": [
        ({"VC_TASK_INDEX": str(index)}, ("tasks", task)) for task, index in ((0, 0), (1, 0), (1, 1))
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_is_a_node_of_its_own_and_hears_what_was_asked(kind: str) -> None:
    asked = make_request(nodes=3, words=["lab2", "--set", "a=$HOME $$ $(RANK) $$(RANK)"])
    numbers = []
    for values, path in NUMBERED[kind]:
        pod = KINDS[kind].objects(asked)[0]["spec"]
        for step in (*path, "template", "spec", "containers", 0, "args"):
            pod = pod[step]
        words = fill_variables(pod, values)
        numbers.append(node.parse_node_number(words[words.index("--node") + 1]))
        assert words[-len(asked.words) :] == asked.words
    assert numbers == [0, 1, 2]
    (document,) = documents(files.compose_files(asked)["compose.yaml"])
    words = fill_variables(document["services"]["node2"]["command"], {})
    assert words[-len(asked.words) :] == asked.words


def test_gpus_of_nodes_on_one_machine_are_not_the_same() -> None:
    (document,) = documents(files.compose_files(make_request(gpus=2))["compose.yaml"])
    ids = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for service in document["services"].values()
    ]
    assert ids == [["0", "1"], ["2", "3"]]
    (document,) = documents(files.compose_files(REQUESTS["npus"])["compose.yaml"])
    cards = [
        [device.partition(":")[0] for device in service["devices"] if "davinci_" not in device]
        for service in document["services"].values()
    ]
    assert cards[1][:8] == [f"/dev/davinci{card}" for card in range(8, 16)]
    job = yaml.safe_load(files.kubernetes_files(REQUESTS["npus"], "volcano")["job.yaml"])
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["huawei.com/Ascend910"] == "8"


def test_a_rate_is_set_before_the_node_begins_by_somebody_else() -> None:
    (document,) = documents(files.compose_files(make_request(rate=10**8))["compose.yaml"])
    services = document["services"]
    assert list(services) == ["link0", "node0", "link1", "node1"]
    assert "rate 100000000bit" in services["link1"]["command"][-1]
    assert services["link1"]["networks"]["ranks"]["aliases"] == ["node1"]
    assert services["node1"]["network_mode"] == "service:link1"
    assert services["node1"]["depends_on"]["link1"]["condition"] == "service_healthy"
    assert [("cap_add" in service) for service in services.values()] == [True, False, True, False]


def test_a_limit_of_time_is_what_each_engine_has_for_it() -> None:
    asked = make_request(seconds=5400)
    (document,) = documents(files.compose_files(asked)["compose.yaml"])
    command = document["services"]["node1"]["command"]
    assert command[0] == "timeout"
    assert "5400" in command
    runtime, train = KINDS["trainjob"].objects(asked)
    assert train["spec"]["activeDeadlineSeconds"] == 5400
    (job,) = KINDS["pytorchjob"].objects(asked)
    assert job["spec"]["runPolicy"]["activeDeadlineSeconds"] == 5400
    (job,) = KINDS["volcano"].objects(asked)
    assert {t["template"]["spec"]["activeDeadlineSeconds"] for t in job["spec"]["tasks"]} == {5400}
    assert {"exitCode": 130, "action": "TerminateJob"} in job["spec"]["policies"]
    assert "activeDeadlineSeconds" not in json.dumps(KINDS["volcano"].objects(make_request()))
    assert runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 3


def test_text_that_looks_like_a_number_stays_text() -> None:
    words = ["1e3", "y", "0o7", ".5", "-1", "on", "null", "1_0", "", "日", "a: b", "#x"]
    text = files.dump_yaml({"words": words})
    assert yaml.safe_load(text)["words"] == words
    for word in ("1e3", "y", "0o7", ".5", "-1", "on"):
        assert f'"{word}"' in text or f"'{word}'" in text
    assert "&" not in files.dump_yaml({"a": words, "b": words})


@pytest.mark.parametrize(
    ("lang", "words"), [("en", "nothing has run it yet"), ("zh", "尚未运行过")]
)
def test_the_command_writes_and_says_so(tmp_path: Path, lang: str, words: str) -> None:
    asked = ["submit", "lab2", "--quick", "--backend", "torch", "--nodes", 2, "--lang", lang]
    done = dualml(*asked, "--on", "compose", "--render", tmp_path / "c", "--rate", "1Gbit")
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "c") in done.stdout
    assert words in (tmp_path / "c" / "README.md").read_text("utf-8")
    (document,) = documents((tmp_path / "c" / "compose.yaml").read_text("utf-8"))
    assert ("--lang" in document["services"]["node0"]["command"]) == (lang == "zh")
    done = dualml(*asked, "--on", "kubernetes", "--render", tmp_path / "k", "--json")
    assert done.returncode == 0, done.stderr
    assert "job.yaml" in json.loads(done.stdout)["files"]
    (job,) = documents((tmp_path / "k" / "job.yaml").read_text("utf-8"))
    assert job["kind"] == "TrainJob"
    # The cluster takes no TrainJob before its runtime, and kustomize would send it first.
    (runtime,) = documents((tmp_path / "k" / "runtime.yaml").read_text("utf-8"))
    assert (runtime["kind"], runtime["metadata"]["name"]) == (
        "TrainingRuntime",
        job["spec"]["runtimeRef"]["name"],
    )
    told = (tmp_path / "k" / "README.md").read_text("utf-8")
    assert told.index("apply -f runtime.yaml") < told.index("apply -k .")


def test_an_experiment_of_ones_own_goes_along(tmp_path: Path, lab: Path) -> None:
    done = dualml("submit", lab, "--on", "kubernetes", "--render", tmp_path / "k")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "k" / "lab.toml").read_bytes() == lab.read_bytes()
    (job,) = documents((tmp_path / "k" / "job.yaml").read_text("utf-8"))
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["args"][-1] == "/lab/lab.toml"
    assert job["metadata"]["name"] == "dualml-tiny"
