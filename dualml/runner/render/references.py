"""Consistency checks of the rendered files: every name that is used exists, and every number fits.

An engine would find the same errors when a container does not start; here they are found before a
file is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dualml.runner.render.compose import Document
from dualml.runner.render.kubernetes import Object
from dualml.runner.render.quantities import BYTES, QUANTITY

#: A DNS label (RFC 1123).
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NODE = "dualml.runner.render.node"
#: Pattern of a variable that Compose substitutes; ``$$`` is an escaped ``$``.
COMPOSE_VARIABLE = re.compile(r"(?<!\$)(\$\$)*\$(?!\$)")


@dataclass(frozen=True)
class ContainerGroup:
    """A group of equal containers: its name, the number of containers, and their command line."""

    name: str
    count: int
    words: Sequence[str]

    def option(self, name: str) -> str | None:
        """Return the value of the option ``name``, such as ``--nodes``, that stands before ``--``
        in the command line; None if it is absent."""
        own = self.words[: self.words.index("--")]
        return own[own.index(name) + 1] if name in own else None


def missing_names(
    what: str, used: Iterator[str] | Sequence[str], there: Sequence[str]
) -> Iterator[str]:
    """Yield a problem for each name in ``used`` that is not ``there``; ``what`` names their
    kind."""
    for name in used:
        if name not in there:
            yield f"{what} {name!r} is not there: {', '.join(there) or 'there are none'}"


def invalid_labels(names: Iterator[str] | Sequence[str]) -> Iterator[str]:
    """Yield a problem for each name that is not a valid DNS label."""
    for name in names:
        if not LABEL.fullmatch(name):
            yield f"{name!r} is no name in a network"


def rank_problems(parts: Sequence[ContainerGroup], arms: Mapping[str, int]) -> Iterator[str]:
    """Yield problems of the containers' command lines, each as text: numbers of nodes, ranks that
    do not fit the ``arms`` (name → ranks), and the rendezvous."""
    count = sum(part.count for part in parts)
    for part in parts:
        nodes, each = int(part.option("--nodes") or 1), int(part.option("--ranks") or 1)
        if nodes != count:
            yield f"{part.name} is given {nodes} nodes; there are {count}"
        for arm, size in arms.items():
            if nodes * each > 1 and size not in (1, nodes * each):
                yield f"arm {arm} has {size} ranks; there are {nodes} x {each}"
        if (count > 1) != (part.option("--rendezvous") is not None):
            yield f"{part.name}: {count} nodes, and --rendezvous {part.option('--rendezvous')}"
    if len({part.option("--rendezvous") for part in parts}) > 1:
        yield "the nodes are given several rendezvous"


def meeting_host(parts: Sequence[ContainerGroup]) -> str | None:
    """Return the host of the first container's ``--rendezvous``; None without one."""
    where = parts[0].option("--rendezvous") if parts else None
    return urlsplit(where).hostname if where else None


def token_problems(token: str, text: str) -> Iterator[str]:
    """Yield a problem if the secret ``token`` is in the ``text`` of the YAML files."""
    if token in text:
        yield "the token stands in a YAML file"


def compose_problems(document: Document, arms: Mapping[str, int]) -> Iterator[str]:
    """Yield problems of the content of a ``compose.yaml``, each as text: names that nothing
    defines, invalid sizes, wrong numbers of nodes, and ranks that do not fit the ``arms`` (name →
    ranks)."""
    services: dict[str, Any] = document["services"]
    yield from invalid_labels(
        [document["name"], *services, *document["volumes"], *document["networks"]]
    )
    named, parts = list(services), list[ContainerGroup]()
    hosts = dict[str, str]()
    for name, service in services.items():
        volumes = [v["source"] for v in service.get("volumes", ()) if v["type"] == "volume"]
        yield from missing_names("volume", volumes, [*document["volumes"]])
        yield from missing_names(
            "secret", service.get("secrets", ()), [*document.get("secrets", ())]
        )
        lent = [config["source"] for config in service.get("configs", ())]
        yield from missing_names("config", lent, [*document.get("configs", ())])
        networks = service.get("networks", ())
        yield from missing_names("network", networks, [*document["networks"]])
        mode = service.get("network_mode", "").removeprefix("service:")
        yield from missing_names(
            "service", [*service.get("depends_on", ()), *[mode] * bool(mode)], named
        )
        aliases = [
            a for n in networks if isinstance(networks, dict) for a in networks[n]["aliases"]
        ]
        hosts |= dict.fromkeys([name, *aliases] if networks else [], name)
        if NODE in service["command"]:
            part = ContainerGroup(name, 1, service["command"])
            parts.append(part)
            where = part.option("--rendezvous")
            test = service["healthcheck"].get("test")
            if where and test and f", {urlsplit(where).port})" not in test[-1]:
                yield f"{name} meets the others at {where}, and is well while another port answers"
            if COMPOSE_VARIABLE.search(" ".join(part.words)):
                yield f"{name}: Compose would fill in a $ of its command"
        most = service.get("deploy", {}).get("resources", {}).get("limits", {})
        if not BYTES.fullmatch(most.get("memory", "0")) or not most.get("cpus", "0").isdecimal():
            yield f"{name}: {most} are no sizes"
    numbers = sorted(int(part.option("--node") or 0) for part in parts)
    if numbers != list(range(len(parts))):
        yield f"the nodes have the numbers {numbers}"
    yield from rank_problems(parts, arms)
    if (host := meeting_host(parts)) is not None:
        yield from missing_names("host", [host], [*hosts])


def iter_pod_specs(value: Any) -> Iterator[Object]:
    """Yield every pod specification inside an object."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from iter_pod_specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iter_pod_specs(inner)


def iter_quantities(value: Any, key: str = "") -> Iterator[str]:
    """Yield every resource request, limit and bandwidth inside an object, as text."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from (
                map(str, inner.values())
                if name in ("requests", "limits")
                else iter_quantities(inner, name)
            )
    elif isinstance(value, list):
        for inner in value:
            yield from iter_quantities(inner, key)
    elif key.endswith("-bandwidth"):
        yield str(value)


def container_groups(item: Object) -> tuple[list[ContainerGroup], str]:
    """Return the groups of pods that a job creates, and the host name of the first pod in the
    cluster. ``item`` is a ``TrainingRuntime``, a ``PyTorchJob`` or a job of Volcano."""
    spec, name = item["spec"], item["metadata"]["name"]
    parts: list[tuple[str, int, Object]]  # name, number of pods, what holds their template
    if item["kind"] == "TrainingRuntime":
        job = spec["template"]["spec"]["replicatedJobs"][0]
        parts = [(job["name"], spec["mlPolicy"]["numNodes"], job["template"]["spec"])]
        first = f"{name}-{job['name']}-0-0.{name}"
    elif item["kind"] == "PyTorchJob":
        parts = [(n, part["replicas"], part) for n, part in spec["pytorchReplicaSpecs"].items()]
        first = f"{name}-{parts[0][0].lower()}-0"
    else:
        parts = [(task["name"], task["replicas"], task) for task in spec["tasks"]]
        first = f"{name}-{parts[0][0]}-0.{name}"
    groups = [
        ContainerGroup(part, count, own["template"]["spec"]["containers"][0]["args"])
        for part, count, own in parts
    ]
    return groups, first


def kubernetes_problems(
    objects: Sequence[Object], together: Object, arms: Mapping[str, int]
) -> Iterator[str]:
    """Yield problems of objects that are applied together, each as text: names that nothing defines
    or that are not unique, invalid quantities, and ranks that do not fit.

    Args:
        objects: that are applied.
        together: the ``kustomization.yaml``, which generates more of them.
        arms: arm → number of ranks.
    """
    there: dict[str, list[str]] = {}
    for item in objects:
        there.setdefault(item["kind"], []).append(item["metadata"]["name"])
    secrets = [item["name"] for item in together.get("secretGenerator", ())]
    configs = [item["name"] for item in together.get("configMapGenerator", ())]
    for kind, known in [*there.items(), ("Secret", secrets), ("ConfigMap", configs)]:
        yield from invalid_labels(known)
        if len({*known}) < len(known):
            yield f"two of kind {kind} have one name: {', '.join(known)}"
    for pod in iter_pod_specs(list(objects)):
        volumes = [volume["name"] for volume in pod["volumes"]]
        claims = [
            v["persistentVolumeClaim"]["claimName"]
            for v in pod["volumes"]
            if "persistentVolumeClaim" in v
        ]
        maps = [v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v]
        yield from missing_names("claim", claims, there.get("PersistentVolumeClaim", []))
        yield from missing_names("ConfigMap", maps, configs)
        for container in pod["containers"]:
            mounts = [mount["name"] for mount in container["volumeMounts"]]
            yield from missing_names("volume", mounts, volumes)
            used = [
                e["valueFrom"]["secretKeyRef"]["name"]
                for e in container.get("env", ())
                if "valueFrom" in e
            ]
            yield from missing_names("Secret", used, secrets)
    for item in objects:
        if "runtimeRef" in item["spec"]:
            yield from missing_names(
                "runtime",
                [item["spec"]["runtimeRef"]["name"]],
                there.get(item["spec"]["runtimeRef"]["kind"], []),
            )
            count = item["spec"]["trainer"]["numNodes"]
            nodes = [o["spec"]["mlPolicy"]["numNodes"] for o in objects if "mlPolicy" in o["spec"]]
            if nodes != [count]:
                yield f"a TrainJob of {count} nodes has a runtime of {nodes}"
        elif item["kind"] not in ("PersistentVolumeClaim", "Pod"):
            parts, first = container_groups(item)
            yield from rank_problems(parts, arms)
            if meeting_host(parts) not in (None, first):
                yield f"the nodes meet at {meeting_host(parts)}; the first of them is {first}"
            if item["spec"].get("minAvailable", 0) > sum(part.count for part in parts):
                yield f"{item['spec']['minAvailable']} pods shall be there, and there are fewer"
    for amount in iter_quantities(list(objects)):
        if not QUANTITY.fullmatch(amount):
            yield f"{amount!r} is no quantity"
