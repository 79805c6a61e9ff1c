"""What is to be rendered: the options of ``dualml submit``, held against one another."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.backend.info import named
from dualml.errors import UserError
from dualml.experiment.find import names as shipped
from dualml.experiment.schema import Experiment
from dualml.files import MOST_TEXT, read_bytes
from dualml.machine import parse_device

#: A DNS label (RFC 1123) that leaves room for what engines append to it: 63 letters are allowed.
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
#: Of an image, as the distribution specification has it: host, path, tag, digest.
IMAGE = re.compile(
    r"([\w.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
NVIDIA, ASCEND = "nvidia.com/gpu", "huawei.com/Ascend910"
#: Where the volumes are in a container; the Dockerfile makes the folders.
RUNS, DATA, LAB = "/runs", "/data", "/lab/lab.toml"
#: Where the workers of a command are, with its script.
WORK = "/work"
#: Of the user in the image, which the Dockerfile makes.
UID = 10001
#: Where rank 0 is found; ports in a container are nobody else's.
PORT = 29600
#: A run that was interrupted is taken up again so often.
RESTARTS = 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is rendered.

    Args:
        name: of everything that gets a name.
        words: of ``dualml run``, in the container.
        arms: ranks of each arm.
        backend: the only one; empty for several, or for those that are in the image.
        nodes: containers that work.
        ranks: on each of them.
        gpus: of each node; ``resource`` is what Kubernetes calls them.
        cores, memory: of each node, in cores and bytes; 0: what the engine gives.
        seconds: the run may take; 0: any.
        rate: bits per second that a node may send; 0: any.
        disk: bytes of each volume.
        lab: the experiment's file, where dualml does not ship it.
        token: of the run.
        is_command: ``words`` are a command, started once in each container.
        mindspore: its workers find MindSpore's scheduler.
        folder: on this machine, which Compose lends to the containers of a command.
        scripts: path → content, of files that Kubernetes lends to them.
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
        """Whether the nodes know one another by a token: those of a run do."""
        return self.nodes > 1 and not self.is_command

    @property
    def restarts(self) -> int:
        """How often a job is begun again: a command cannot be gone on with."""
        return 0 if self.is_command else RESTARTS

    @property
    def size(self) -> int:
        return self.nodes * self.ranks

    @property
    def out(self) -> str:
        """The run folder, in the container of the first node."""
        return f"{RUNS}/{self.name}"

    def command(self, node: str, host: str) -> list[str]:
        """What the container of a node runs.

        Args:
            node: its number, from 0, or how the engine says it.
            host: of the first node, for the others.
        """
        words = ["python3", "-P", "-m", "dualml.render.node", "--node", node, "--out", self.out]
        if self.size > 1:
            words += ["--nodes", str(self.nodes), "--ranks", str(self.ranks)]
        if self.nodes > 1:
            words += ["--rendezvous", f"tcp://{host}:{PORT}"]
            words += ["--launcher", self.backend] if self.ranks > 1 else []
        if self.is_command:
            words += ["--command", *["--mindspore"] * self.mindspore]
        return [*words, "--", *self.words]


def literal(words: Sequence[str]) -> list[str]:
    """Compose fills in ``$X`` and Kubernetes ``$(X)``; for both of them two ``$`` are one."""
    return [word.replace("$", "$$") for word in words]


def backend_of(word: str | None) -> str:
    """The only backend that ``--backend`` names; empty for several or for what there is.

    Raises:
        UserError: an unknown word.
    """
    names = named(word) if word else []
    return names[0] if len(names) == 1 else ""


def name_of(given: str | None, experiment: str) -> str:
    """Raises `UserError` for what no engine takes for a name."""
    name = given or f"dualml-{re.sub('[^a-z0-9]+', '-', experiment.lower()).strip('-')}"
    if not NAME.fullmatch(name):
        how = "up to 40 of a-z, 0-9 and -, a letter first and no - last"
        raise UserError(f"--name {name!r}: use {how}")
    return name


def accelerator(gpus: int, device: str | None, backend: str) -> str:
    """What a node has ``gpus`` of.

    Raises:
        UserError: ``device`` is another one, or there are none of it.
    """
    kind, _ = parse_device(device or "auto")
    if kind in ("gpu", "ascend") and not gpus:
        raise UserError(f"--device {device} without --gpus-per-node: a node gets none")
    if kind == "cpu" and gpus:
        raise UserError(f"--gpus-per-node {gpus} with --device {device}: leave one of them out")
    if kind == "ascend" and backend == "torch":
        raise UserError(f"--device {device}: dualml drives it with --backend mindspore only")
    return ASCEND if kind == "ascend" or (kind == "auto" and backend == "mindspore") else NVIDIA


def image_of(given: str | None, gpus: int, resource: str) -> str:
    """Raises `UserError` for what is no name of an image, or of one without GPUs."""
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
    """Raises `UserError` where the nodes do not give the ranks of an arm."""
    size = nodes * ranks
    if size > 1 and max(arms.values()) == 1:
        raise UserError(f"{nodes} x {ranks} ranks, but no arm that runs has several: leave out "
                        "--nodes and --ranks-per-node")  # fmt: skip
    for name, wanted in arms.items():
        if size > 1 and wanted not in (1, size):
            raise UserError(
                f"arm {name} has {wanted} ranks; --nodes {nodes} --ranks-per-node {ranks} give "
                f"{size}: make their product {wanted}, or leave the arm out"
            )


def check_launch(backend: str, nodes: int, ranks: int) -> None:
    """Raises `UserError` where nothing starts such ranks."""
    if nodes > 1 and backend == "numpy":
        raise UserError(f"--nodes {nodes}: the ranks of numpy are threads of one process")
    if nodes > 1 and ranks > 1 and backend not in ("torch", "mindspore"):
        text = "they need torchrun or msrun: choose --backend torch or mindspore"
        raise UserError(f"--ranks-per-node {ranks} on {nodes} nodes: {text}")


def request(experiment: Experiment, given: Mapping[str, Any], **options: Any) -> Request:
    """All of it.

    Args:
        given: options of ``dualml run``, as its command line has read them.
        options: those of ``dualml submit``, their numbers read.

    Raises:
        UserError: what cannot be rendered, with the remedy.
    """
    arms = {name: arm.world_size for name, arm in experiment.arms.items()}
    nodes, ranks, gpus = options["nodes"], options["ranks"], options["gpus"]
    backend = backend_of(given["backend"])
    check_launch(backend, nodes, ranks)
    check_ranks(arms, nodes, ranks)
    if experiment.initial:
        text = f"{experiment.initial} is a file of this machine; no container has it"
        raise UserError(f"{experiment.name}: {text}")
    if experiment.pretrained:
        text = f"{experiment.pretrained} is a folder of this machine; no container has it"
        raise UserError(f"{experiment.name}: {text}")
    resource = accelerator(gpus, given["device"], backend)
    words, lab = list(options["words"]), None
    if given["lab"] not in shipped():
        words[words.index(given["lab"])] = LAB
        lab = read_bytes(Path(given["lab"]), MOST_TEXT)
    if nodes == 1 and ranks > 1:  # started by the run itself
        words += ["--world-size", str(ranks)]
    return Request(
        name=name_of(options["name"], experiment.name), words=words, arms=arms, backend=backend,
        nodes=nodes, ranks=ranks, gpus=gpus, resource=resource, cores=options["cores"],
        memory=options["memory"], seconds=options["seconds"],
        image=image_of(options["image"], gpus, resource), rate=options["rate"],
        disk=options["disk"], lang=options["lang"], lab=lab,
    )  # fmt: skip
