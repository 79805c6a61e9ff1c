"""The request to render, made from the options of ``dualml submit`` after checking them against one
another."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.backend.info import parse_backend_names
from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes
from dualml.common.machine import parse_device
from dualml.experiment.find import experiment_files as shipped
from dualml.experiment.schema import Experiment
from dualml.runner.request import RunRequest

#: A DNS label (RFC 1123, at most 63 characters) that leaves room for what engines append to it.
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
#: Name of an image, as in the distribution specification: host, path, tag, digest.
IMAGE = re.compile(
    r"([\w.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
NVIDIA, ASCEND = "nvidia.com/gpu", "huawei.com/Ascend910"
#: Paths of the volumes in a container; the Dockerfile creates the folders.
RUNS, DATA, LAB = "/runs", "/data", "/lab/lab.toml"
#: Working folder of the workers of a command, with its script.
WORK = "/work"
#: Id of the user in the image, which the Dockerfile creates.
UID = 10001
#: Port of rank 0; nothing else uses ports in its container.
PORT = 29600
#: Number of times that an interrupted run is restarted.
RESTARTS = 3


@dataclass(frozen=True, kw_only=True)
class RenderRequest:
    """Request for the files that start a run, or a command, on a cluster.

    Args:
        name: of all objects.
        words: arguments of ``dualml run`` in the container.
        arms: arm → number of ranks.
        backend: the only one; empty for several, or for those that the image has.
        nodes: number of containers that compute.
        ranks: number of ranks on each of them.
        gpus: of each node.
        resource: Kubernetes' name for the GPUs.
        cores, memory: of each node, in cores and bytes; 0 for the engine's default.
        seconds: time limit of the run; 0 for none.
        image: of the containers.
        rate: bits per second that a node may send; 0 for no limit.
        disk: bytes of each volume.
        lang: language of the instructions.
        lab: the experiment's file, if it is not one of dualml's own.
        token: secret by which the nodes authenticate one another; drawn at random by default.
        is_command: whether ``words`` are a command, started once in each container.
        mindspore: whether its workers need MindSpore's scheduler.
        folder: on this machine, mounted by Compose into the containers of a command.
        scripts: path → content, of files that Kubernetes mounts into them.
    """

    name: str
    words: Sequence[str]
    arms: Mapping[str, int]
    backend: str
    nodes: int
    ranks: int
    gpus: int
    resource: str
    cores: int
    memory: int
    seconds: int
    image: str
    rate: int
    disk: int
    lang: str
    lab: bytes | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    is_command: bool = False
    mindspore: bool = False
    folder: Path | None = None
    scripts: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def has_token(self) -> bool:
        """Whether the nodes authenticate one another by a token, as those of a run do."""
        return self.nodes > 1 and not self.is_command

    @property
    def restarts(self) -> int:
        """Number of times that a job is restarted; 0 for a command, which cannot be resumed."""
        return 0 if self.is_command else RESTARTS

    @property
    def size(self) -> int:
        """Number of ranks on all nodes."""
        return self.nodes * self.ranks

    @property
    def run_folder(self) -> str:
        """Path of the run folder in the container of the first node."""
        return f"{RUNS}/{self.name}"

    def node_command(self, node: str, host: str) -> list[str]:
        """Return the command line of a node's container.

        Args:
            node: its number, from 0, or the engine's expression for it.
            host: of the first node, for the others.
        """
        words = [
            "python3",
            "-P",
            "-m",
            "dualml.runner.render.node",
            "--node",
            node,
            "--out",
            self.run_folder,
        ]
        if self.size > 1:
            words += ["--nodes", str(self.nodes), "--ranks", str(self.ranks)]
        if self.nodes > 1:
            words += ["--rendezvous", f"tcp://{host}:{PORT}"]
            words += ["--launcher", self.backend] if self.ranks > 1 else []
        if self.is_command:
            words += ["--command", *["--mindspore"] * self.mindspore]
        return [*words, "--", *self.words]


def escape_dollars(words: Sequence[str]) -> list[str]:
    """Escape ``$`` as ``$$``, because Compose substitutes ``$X`` and Kubernetes ``$(X)``."""
    return [word.replace("$", "$$") for word in words]


def only_backend(word: str | None) -> str:
    """Return the backend if ``word``, the value of ``--backend``, names exactly one; an empty text
    otherwise, also for None.

    Raises:
        UserError: an unknown name.
    """
    names = parse_backend_names(word) if word else []
    return names[0] if len(names) == 1 else ""


def choose_name(given: str | None, experiment: str) -> str:
    """Return the name of the run's objects: the given one, or one made from the experiment's.

    Raises:
        UserError: it is not a name that every engine accepts.
    """
    name = given or f"dualml-{re.sub('[^a-z0-9]+', '-', experiment.lower()).strip('-')}"
    if not NAME.fullmatch(name):
        how = "up to 40 of a-z, 0-9 and -, a letter first and no - last"
        raise UserError(f"--name {name!r}: use {how}")
    return name


def accelerator_resource(gpus: int, device: str | None, backend: str) -> str:
    """Return Kubernetes' resource name of a node's GPUs or NPUs, also if it gets none.

    Raises:
        UserError: ``device`` does not fit ``gpus`` or the backend.
    """
    kind, _ = parse_device(device or "auto")
    if kind in ("gpu", "ascend") and not gpus:
        raise UserError(f"--device {device} without --gpus-per-node: a node gets none")
    if kind == "cpu" and gpus:
        raise UserError(f"--gpus-per-node {gpus} with --device {device}: leave one of them out")
    if kind == "ascend" and backend == "torch":
        raise UserError(f"--device {device}: dualml drives it with --backend mindspore only")
    return ASCEND if kind == "ascend" or (kind == "auto" and backend == "mindspore") else NVIDIA


def choose_image(given: str | None, gpus: int, resource: str) -> str:
    """Return the image: the given one, or dualml's for the accelerator.

    Raises:
        UserError: it is not a valid name, or its tag says that it is for CPUs although there are
            GPUs.
    """
    fits = ("ascend" if resource == ASCEND else "cuda") if gpus else "cpu"
    image = given or f"dualml:{fits}"
    if not IMAGE.fullmatch(image):
        raise UserError(f"--image {image!r} is no name of an image; use NAME:TAG")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if gpus and "cpu" in re.split("[^a-z]+", tag.lower()):
        text = f"by its tag it is for CPUs; the Dockerfile says how to build dualml:{fits}"
        raise UserError(f"--gpus-per-node {gpus} with --image {image}: {text}")
    return image


def check_ranks(arms: Mapping[str, int], nodes: int, ranks: int) -> None:
    """Raise `UserError` where ``nodes`` × ``ranks`` is above 1 and is not the number of ranks of
    each arm with several, or no arm has several."""
    size = nodes * ranks
    if size > 1 and max(arms.values()) == 1:
        raise UserError(
            f"{nodes} x {ranks} ranks, but no arm that runs has several: leave out "
            "--nodes and --ranks-per-node"
        )
    for name, wanted in arms.items():
        if size > 1 and wanted not in (1, size):
            raise UserError(
                f"arm {name} has {wanted} ranks; --nodes {nodes} --ranks-per-node {ranks} give "
                f"{size}: make their product {wanted}, or leave the arm out"
            )


def check_launch(backend: str, nodes: int, ranks: int) -> None:
    """Raise `UserError` for ranks on several ``nodes`` that nothing can start: those of numpy, and
    several (``ranks``) per node unless ``backend`` is torch or mindspore."""
    if nodes > 1 and backend == "numpy":
        raise UserError(f"--nodes {nodes}: the ranks of numpy are threads of one process")
    if nodes > 1 and ranks > 1 and backend not in ("torch", "mindspore"):
        text = "they need torchrun or msrun: choose --backend torch or mindspore"
        raise UserError(f"--ranks-per-node {ranks} on {nodes} nodes: {text}")


def make_render_request(
    experiment: Experiment, request: RunRequest, **options: Any
) -> RenderRequest:
    """Make the request that renders a run, from its options after checking them.

    Args:
        experiment: that is run.
        request: for the run.
        options: those of ``dualml submit``, with numbers parsed, and ``words``, the arguments of
            ``dualml run``.

    Raises:
        UserError: it cannot be rendered; the text has the remedy.
    """
    arms = {name: arm.world_size for name, arm in experiment.arms.items()}
    nodes, ranks, gpus = options["nodes"], options["ranks"], options["gpus"]
    backend = only_backend(request.backend)
    check_launch(backend, nodes, ranks)
    check_ranks(arms, nodes, ranks)
    if experiment.initial:
        text = f"{experiment.initial} is a file of this machine; no container has it"
        raise UserError(f"{experiment.name}: {text}")
    if experiment.pretrained:
        text = f"{experiment.pretrained} is a folder of this machine; no container has it"
        raise UserError(f"{experiment.name}: {text}")
    resource = accelerator_resource(gpus, request.device, backend)
    words, lab = list(options["words"]), None
    if (name := request.require_lab()) not in shipped():
        words[words.index(name)] = LAB
        lab = read_bytes(Path(name), MAX_TEXT_BYTES)
    if nodes == 1 and ranks > 1:  # started by the run itself
        words += ["--world-size", str(ranks)]
    kept = {key: options[key] for key in ("cores", "memory", "seconds", "rate", "disk", "lang")}
    return RenderRequest(
        name=choose_name(options["name"], experiment.name),
        words=words,
        arms=arms,
        backend=backend,
        nodes=nodes,
        ranks=ranks,
        gpus=gpus,
        resource=resource,
        image=choose_image(options["image"], gpus, resource),
        lab=lab,
        **kept,
    )
