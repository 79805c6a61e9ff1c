"""Requests that the render tests use, and the published schemas that the output is checked
against."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from dualml.runner.render.request import ASCEND, NVIDIA, RenderRequest

SCHEMAS = Path(__file__).parent / "schemas"
#: Kind → schema file; Kubernetes' own kinds share one.
CUSTOM = {
    "TrainingRuntime": "trainingruntimes",
    "TrainJob": "trainjobs",
    "PyTorchJob": "pytorchjobs",
    "Job": "jobs",
}
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def make_request(**changes: Any) -> RenderRequest:
    """Return a request for two nodes with one rank each, with changes."""
    arms = changes.pop("arms", None)
    given: dict[str, Any] = {
        "name": "dualml-lab2",
        "words": ["lab2", "--quick", "--set", "note='$HOME $(RANK)'"],
        "backend": "torch",
        "nodes": 2,
        "ranks": 1,
        "gpus": 0,
        "resource": NVIDIA,
        "cores": 2,
        "memory": 4 * 10**9,
        "seconds": 0,
        "image": "dualml:cpu",
        "rate": 0,
        "disk": 2**30,
        "lang": "en",
    } | changes
    size = given["nodes"] * given["ranks"]
    return RenderRequest(arms=arms or {"one": 1, "several": size}, **given)


#: Schemas by a key that only they have.
REQUESTS = {
    "two": make_request(),
    "one": make_request(nodes=1, arms={"one": 1}),
    "eight-ranks": make_request(nodes=4, ranks=2),
    "gpus": make_request(gpus=2, image="registry.example:5000/lab/dualml:cuda", cores=0, memory=0),
    "npus": make_request(gpus=8, resource=ASCEND, backend="mindspore", image="dualml:ascend"),
    "rate": make_request(rate=10**8, nodes=3),
    "time": make_request(seconds=5400),
    "file": make_request(lab=b"name = 'mine'\n", words=["/lab/lab.toml"]),
    "nothing": make_request(nodes=1, cores=0, memory=0, arms={"one": 1}),
}


@pytest.fixture(params=REQUESTS)
def request_(request: pytest.FixtureRequest) -> RenderRequest:
    return REQUESTS[request.param]


def strict(value: Any) -> Any:
    """Forbid fields that a schema does not name, as the API server's strict validation does."""
    if isinstance(value, dict):
        closed = {key: strict(inner) for key, inner in value.items()}
        open_ = "additionalProperties" in value or "x-kubernetes-preserve-unknown-fields" in value
        if isinstance(value.get("properties"), dict) and not open_:
            closed["additionalProperties"] = False
        return closed
    return [strict(inner) for inner in value] if isinstance(value, list) else value


@cache
def schema(kind: str) -> Draft7Validator:
    """Return the validator of ``compose`` or of a kind of Kubernetes object."""
    if kind == "compose":
        return Draft7Validator(json.loads((SCHEMAS / "compose-spec.json").read_text("utf-8")))
    core = strict(json.loads((SCHEMAS / "core.json").read_text("utf-8")))
    if kind not in CUSTOM:
        return Draft7Validator(core | {"$ref": f"#/definitions/io.k8s.api.core.v1.{kind}"})
    custom = strict(json.loads((SCHEMAS / f"{CUSTOM[kind]}.json").read_text("utf-8")))
    custom["properties"]["metadata"] = {"$ref": f"#/definitions/{META}"}
    return Draft7Validator(custom | core)


def wrong(document: Any, kind: str = "") -> list[str]:
    """Return the violations of a published schema in a document."""
    found = schema(kind or document["kind"]).iter_errors(document)
    return [f"{'.'.join(map(str, error.path))}: {error.message[:200]}" for error in found]


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))
