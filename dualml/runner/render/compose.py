"""A run for Docker Compose: one service for each node, on one machine.

Where a network rate is requested, a node's network belongs to a service of its own, which sets the
rate before the node starts: Compose has no option for it, and the container that runs the
experiment needs no privilege to set one.
"""

from __future__ import annotations

from typing import Any

from dualml.launch.connection import TOKEN
from dualml.runner.render.node import TOKEN_FILE
from dualml.runner.render.request import (
    ASCEND,
    DATA,
    LAB,
    PORT,
    RUNS,
    WORK,
    RenderRequest,
    escape_dollars,
)

Document = dict[str, Any]

#: Names of the first service, of the network and of the secret.
FIRST_SERVICE, NETWORK, SECRET = "node0", "ranks", "token"
#: Devices and files of the host that a container needs to use an Ascend, as for CANN's images.
ASCEND_DEVICES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
ASCEND_FILES = (
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
)
#: tc's bucket holds the bytes that may be sent between two ticks of a kernel with 250 ticks per
#: second, and at least one packet of the largest size.
TICKS_PER_S, MIN_BURST_BYTES = 250, 2**16
SAFE = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}


def compose_document(request: RenderRequest) -> Document:
    """Return the content of ``compose.yaml`` as nested dicts: a service for each node and, with a
    network rate, one for its network; volumes, network, secret and experiment file."""
    services = dict[str, Any]()
    for number in range(request.nodes):
        if request.rate:
            services[f"link{number}"] = link_service(request, number)
        services[f"node{number}"] = node_service(request, number)
    document: Document = {"name": request.name, "services": services}
    document["volumes"] = {"runs": {}, "data": {}}
    document["networks"] = {NETWORK: {"driver": "bridge"}}
    if request.has_token:
        document["secrets"] = {SECRET: {"environment": TOKEN}}
    if request.lab is not None:
        document["configs"] = {"lab": {"file": "./lab.toml"}}
    return document


def node_service(request: RenderRequest, number: int) -> Document:
    """Return the service of node ``number``: image, command, volumes, network and accelerators."""
    words = escape_dollars(request.node_command(str(number), FIRST_SERVICE))
    if request.seconds:
        words = ["timeout", "--signal=TERM", "--kill-after=60", str(request.seconds), *words]
    service: Document = {"image": request.image, "init": True, "command": words}
    service["environment"] = {"DUALML_CACHE": DATA}
    if request.has_token:
        service["environment"][TOKEN_FILE] = f"/run/secrets/{SECRET}"
        service["secrets"] = [SECRET]
    if request.lab is not None:
        service["configs"] = [{"source": "lab", "target": LAB}]
    service["volumes"] = [volume_mount("runs", RUNS)] * (number == 0) + [volume_mount("data", DATA)]
    if request.is_command:
        service["working_dir"] = WORK
        service["volumes"].append(bind_mount(str(request.folder), WORK))
    if request.rate:
        service["network_mode"] = f"service:link{number}"
        service["depends_on"] = {f"link{number}": {"condition": "service_healthy"}}
    else:
        service["networks"] = [NETWORK]
    if request.gpus and request.resource == ASCEND:
        cards = range(number * request.gpus, (number + 1) * request.gpus)
        paths = [*(f"/dev/davinci{card}" for card in cards), *ASCEND_DEVICES]
        service["devices"] = [f"{path}:{path}" for path in paths]
        service["volumes"] += [bind_mount(path, path) for path in ASCEND_FILES]
    if resources := node_resources(request, number):
        service["deploy"] = {"resources": resources}
    return {**service, "healthcheck": health_check(request), **SAFE}


def node_resources(request: RenderRequest, number: int) -> Document:
    """Return the resources of a node: its limits, and specific GPUs, because a mere number of GPUs
    would give all nodes the same ones."""
    most: Document = {"cpus": str(request.cores)} if request.cores else {}
    most |= {"memory": f"{request.memory}b"} if request.memory else {}
    resources: Document = {"limits": most} if most else {}
    if request.gpus and request.resource != ASCEND:
        first = number * request.gpus
        ids = [str(card) for card in range(first, first + request.gpus)]
        card = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
        resources["reservations"] = {"devices": [card]}
    return resources


def health_check(request: RenderRequest) -> Document:
    """Return the health check of a node: it can connect to the first node, or, if it is the only
    one, has a run folder. For a command there is none: a connection to its port may disturb it."""
    if request.is_command:
        return {"disable": True}
    if request.nodes > 1:
        call = f"import socket; socket.create_connection(('{FIRST_SERVICE}', {PORT}), 3).close()"
        test = ["CMD", "python3", "-I", "-c", call]
    else:
        test = ["CMD", "test", "-f", f"{request.run_folder}/run.json"]
    return {"test": test, "interval": "15s", "timeout": "10s", "retries": 4, "start_period": "5m"}


def link_service(request: RenderRequest, number: int) -> Document:
    """Return the service that owns the network of node ``number`` and limits its rate with ``tc``'s
    token bucket; only for a request with a rate."""
    burst = max(MIN_BURST_BYTES, request.rate // 8 // TICKS_PER_S)
    shape = f"tc qdisc replace dev eth0 root tbf rate {request.rate}bit burst {burst} latency 50ms"
    return {
        "image": request.image,
        "init": True,
        "user": "0:0",
        "command": ["sh", "-c", f"{shape} && exec sleep infinity"],
        "networks": {NETWORK: {"aliases": [f"node{number}"]}},
        "healthcheck": {
            "test": ["CMD-SHELL", "tc qdisc show dev eth0 | grep -q tbf"],
            "interval": "1s",
            "timeout": "5s",
            "retries": 30,
        },
        **SAFE,
        "cap_add": ["NET_ADMIN"],
    }


def volume_mount(name: str, target: str) -> Document:
    """Return the mount of the named volume ``name`` at the path ``target`` of a service."""
    return {"type": "volume", "source": name, "target": target}


def bind_mount(source: str, target: str) -> Document:
    """Return the mount of the machine's path ``source`` at the path ``target`` of a service, which
    cannot write there."""
    return {"type": "bind", "source": source, "target": target, "read_only": True}
