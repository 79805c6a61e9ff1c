"""Broken references, which an engine would report too late, are found before a file is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from render_cases import REQUESTS, make_request

from dualml.common.errors import UserError
from dualml.runner.render import files
from dualml.runner.render.compose import compose_document
from dualml.runner.render.kinds import KINDS
from dualml.runner.render.kubernetes import files_pod, kustomization, volume_claims
from dualml.runner.render.references import compose_problems, kubernetes_problems, token_problems

FULL = make_request(rate=10**8, lab=b"", seconds=60)
Change = Callable[[Any], object]


def words(service: Any, old: str, new: str) -> None:
    service["command"] = [new if word == old else word for word in service["command"]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d["volumes"].pop("runs"), "volume 'runs' is not there: data"),
        (lambda d: d.pop("secrets"), "secret 'token' is not there: there are none"),
        (lambda d: d.pop("configs"), "config 'lab' is not there"),
        (lambda d: d["networks"].pop("ranks"), "network 'ranks' is not there"),
        (lambda d: d["services"].pop("link1"), "service 'link1' is not there"),
        (
            lambda d: d["services"]["node1"].update(network_mode="service:x"),
            "service 'x' is not there",
        ),
        (
            lambda d: d["services"]["link0"]["networks"]["ranks"].update(aliases=["n"]),
            "host 'node0' is not there: link0, n, link1, node1",
        ),
        (
            lambda d: words(d["services"]["node1"], "tcp://node0:29600", "tcp://node1:29600"),
            "the nodes are given several rendezvous",
        ),
        (lambda d: words(d["services"]["node1"], "1", "2"), "the nodes have the numbers"),
        (
            lambda d: words(d["services"]["node0"], "2", "3"),
            "node0 is given 3 nodes; there are 2",
        ),
        (lambda d: d["services"].pop("node1"), "given 2 nodes; there are 1"),
        (
            lambda d: words(d["services"]["node1"], "tcp://node0:29600", "tcp://node0:29601"),
            "node1 meets the others at tcp://node0:29601, and is well while another port answers",
        ),
        (lambda d: d.update(name="a b"), "'a b' is no name in a network"),
        (lambda d: words(d["services"]["node0"], "lab2", "$x"), "would fill in a $"),
        (
            lambda d: d["services"]["node0"]["deploy"]["resources"]["limits"].update(memory="4GB"),
            "are no sizes",
        ),
    ],
)
def test_what_does_not_hold_together_in_compose(change: Change, problem: str) -> None:
    document = compose_document(FULL)
    assert [*compose_problems(document, FULL.arms)] == []
    change(document)
    found = [*compose_problems(document, FULL.arms)]
    assert any(problem in text for text in found), found


def test_ranks_that_an_arm_does_not_have() -> None:
    found = [*compose_problems(compose_document(make_request()), {"several": 4})]
    assert "arm several has 4 ranks; there are 2 x 1" in found


def all_documents(kind: str) -> dict[str, Any]:
    objects = copy.deepcopy(KINDS[kind].objects(FULL))
    parts = {item["kind"]: item for item in objects}
    volumes = volume_claims(FULL, KINDS[kind].shared)
    return {
        **parts,
        "runs": volumes[0],
        "data": volumes[1],
        "files": files_pod(FULL),
        "kustomization": kustomization(FULL),
    }


def problems(parts: dict[str, Any]) -> list[str]:
    objects = [item for name, item in parts.items() if name != "kustomization"]
    return [*kubernetes_problems(objects, parts["kustomization"], FULL.arms)]


def pod(parts: dict[str, Any]) -> Any:
    """Return the pod specification of the last part of a Volcano job."""
    return parts["Job"]["spec"]["tasks"][-1]["template"]["spec"]


@pytest.mark.parametrize(("kind", "change", "problem"), [
    ("volcano", lambda p: p.pop("data"), "claim 'dualml-lab2-data' is not there"),
    ("volcano", lambda p: p["kustomization"].pop("secretGenerator"), "Secret 'dualml-lab2-token'"),
    ("volcano", lambda p: p["kustomization"].pop("configMapGenerator"), "ConfigMap 'dualml-lab2-l"),
    ("volcano", lambda p: pod(p)["volumes"].pop(0), "volume 'data' is not there"),
    ("volcano", lambda p: p["Job"]["metadata"].update(name="x"), "of them is x-first-0.x"),
    ("volcano", lambda p: p["Job"]["spec"]["tasks"].pop(), "given 2 nodes; there are 1"),
    ("volcano", lambda p: p["Job"]["spec"].update(minAvailable=3), "3 pods shall be there"),
    ("volcano", lambda p: p["runs"]["metadata"].update(name="dualml-lab2-data"), "have one name"),
    ("volcano", lambda p: p["runs"]["metadata"].update(name="Runs"), "'Runs' is no name"),
    ("volcano", lambda p: p["data"]["spec"]["resources"]["requests"].update(storage="10 GB"),
     "'10 GB' is no quantity"),
    ("volcano", lambda p: p["Job"]["spec"]["tasks"][0]["template"]["metadata"].update(
        annotations={"kubernetes.io/egress-bandwidth": "fast"}), "'fast' is no quantity"),
    ("trainjob", lambda p: p["TrainingRuntime"]["metadata"].update(name="x"),
     "runtime 'dualml-lab2' is not there: x"),
    ("trainjob", lambda p: p["TrainJob"]["spec"]["trainer"].update(numNodes=3),
     "a TrainJob of 3 nodes has a runtime of [2]"),
    ("pytorchjob", lambda p: p["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]["Worker"].update(
        replicas=2), "given 2 nodes; there are 3"),
    ("pytorchjob", lambda p: p["PyTorchJob"]["metadata"].update(name="x"), "x-master-0"),
])  # fmt: skip
def test_what_does_not_hold_together_in_kubernetes(kind: str, change: Change, problem: str) -> None:
    parts = all_documents(kind)
    assert problems(parts) == []
    change(parts)
    found = problems(parts)
    assert any(problem in text for text in found), found


def test_a_token_in_yaml_is_found() -> None:
    assert [*token_problems("abc", "x: abcd")] == ["the token stands in a YAML file"]
    assert [*token_problems("abc", "x: y")] == []


def test_nothing_is_written_of_what_does_not_hold_together() -> None:
    with pytest.raises(UserError, match="nothing is written: the token stands in a YAML file"):
        files.compose_files(make_request(token="service"))
    with pytest.raises(UserError, match="nothing is written: arm x has 3 ranks"):
        files.kubernetes_files(make_request(arms={"x": 3}), "volcano")
    assert files.compose_files(REQUESTS["two"])
