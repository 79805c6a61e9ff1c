"""Turn a request into a run folder, new or resumed, before the first trial."""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.backend import BackendInfo, backends, select_backends
from dualml.common.cores import CpuLoadMonitor, available_threads
from dualml.common.errors import UserError
from dualml.common.machine import parse_device, python_argv, run_bounded
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder, check_free, lock_run_folder
from dualml.experiment.store.manifest import Options, read_run
from dualml.experiment.store.sessions import clear_sessions
from dualml.runner.request import RunRequest

if TYPE_CHECKING:
    from dualml.experiment.plan import Plan

#: Program that creates a backend on a device, to see whether it works.
PROBE = """
import json, sys
from dualml.backend import backends
from dualml.launch.child import failure_reason
try:
    backends()[sys.argv[1]].create(sys.argv[2])
    end = ["ok", ""]
except BaseException as error:
    end = list(failure_reason(error))
print("\\n" + json.dumps(end))
"""


@dataclass(frozen=True)
class FrozenRun:
    """A run whose plan is frozen in its folder.

    Attributes:
        request: that asked for it.
        folder: of the run.
        plan: frozen.
        infos: backend → its description.
    """

    request: RunRequest
    folder: RunFolder
    plan: Plan
    infos: Mapping[str, BackendInfo]

    @functools.cached_property
    def words(self) -> Messages:
        """Messages in the language of the request, or else in that of the run."""
        return Messages(self.request.lang or self.folder.run.lang)

    @property
    def quiet(self) -> bool:
        """Whether no progress is shown."""
        return not self.request.progress


def open_run(request: RunRequest, held: contextlib.ExitStack) -> FrozenRun:
    """Freeze the plan of a new run in its new folder, or open the folder of the run to resume, and
    lock the folder for as long as ``held`` is open. In a resumed folder, what earlier starts
    announced to other ranks is removed.

    Raises:
        UserError: wrong input, or another process has locked the folder.
    """
    if request.resume is None:
        frozen = freeze_plan(request)
        held.enter_context(lock_run_folder(frozen.folder.path))
        return frozen
    request.check_resumable()
    read_run(request.resume)  # nothing is written into a folder that is not a run folder
    held.enter_context(lock_run_folder(request.resume))
    frozen = reopen_run(request, request.resume)
    clear_sessions(frozen.folder.path)
    return frozen


def freeze_plan(request: RunRequest) -> FrozenRun:
    """Check everything that can be wrong, cheapest first, and create the run folder with the frozen
    plan.

    Raises:
        UserError: wrong input.
    """
    from dualml.experiment.data import load as load_data
    from dualml.experiment.freeze import freeze
    from dualml.experiment.load import SMALL
    from dualml.experiment.pretrained import open_pretrained
    from dualml.runner.checkpoint.initial import open_initial, read_initial

    request.require_lab()
    infos = select_backends(request.backend)
    watch = CpuLoadMonitor()
    experiment = request.load_experiment(request.world_size)
    several = any(arm.world_size > 1 for arm in experiment.arms.values())
    for option, value in (("--rendezvous", request.rendezvous), ("--check", request.check)):
        if value and not several:
            raise UserError(f"{option}: no arm of {experiment.name} that runs has several ranks")
    if experiment.pretrained:
        open_pretrained(experiment)
    if experiment.initial:
        open_initial(experiment.initial)
    device = "auto" if request.device is None else request.device
    check_devices(infos, device)
    out = request.out or default_run_folder(request.name or experiment.name)
    check_free(out)
    sizes = experiment.data.model_dump(include={"words", "length", "labels", "tokens"})
    sizes["pretrained"] = experiment.pretrained
    data = load_data(experiment.data.name, explicit=request.names_data, **sizes)
    if len(data.train_x) < SMALL:
        experiment = request.load_experiment(request.world_size, small=True)
    plan = freeze(experiment, data, read_initial)
    busy = watch.busy_fractions()
    options: dict[str, Any] = {"device": device, "busy": busy}
    options["threads"] = request.threads or available_threads(busy)
    if any(arm.world_size > 1 for arm in experiment.arms.values()):
        options |= {"rendezvous": request.rendezvous or "auto", "check": request.check}
        options["threads_asked"] = bool(request.threads)
    names = [info.name for info in infos]
    folder = RunFolder.create(out, plan, names, request.lang or "en", Options(**options))
    return FrozenRun(request, folder, plan, {info.name: info for info in infos})


def default_run_folder(name: str) -> Path:
    """Return a path below ``runs``, with ``name`` and the time, at which nothing exists yet; it is
    not created."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = Path("runs") / f"{name}-{stamp}"
    others = (first.with_name(f"{first.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def reopen_run(request: RunRequest, path: Path) -> FrozenRun:
    """Open the run folder ``path`` to resume it as its run.json says, with another number of ranks
    if ``world_size`` is set, for which its checkpoints are converted; no trial is started. The
    backends are those of trials that have not ended.

    Raises:
        UserError: it is another experiment's, a backend is not installed, the data are no longer
            there, or a trial cannot have that number of ranks.
    """
    from dualml.common.files import read_toml
    from dualml.experiment.data import load_planned
    from dualml.experiment.find import experiment_files, locate
    from dualml.runner.session.elastic import resize_trials

    name = read_run(path).name
    if request.lab and request.lab != name:
        there = Path(request.lab).is_file() or request.lab in experiment_files()
        if not there or read_toml(locate(request.lab)).get("name") != name:
            raise UserError(f"{path} is a run of {name}, not of {request.lab}")
    folder, plan = RunFolder.open(path)
    plan = resize_trials(folder, plan, request.world_size)
    known = backends()
    needed = list(dict.fromkeys(trial.backend for trial in folder.pending()))
    for name in needed:
        if name not in known or not known[name].installed():
            hint = f"; install it with: {known[name].install}" if name in known else ""
            raise UserError(f"{path} needs backend {name!r}, which is not installed{hint}")
    if needed:
        load_planned(plan.data)
    return FrozenRun(request, folder, plan, {name: known[name] for name in needed})


def check_devices(infos: Sequence[BackendInfo], device: str) -> None:
    """Raise `UserError` for a device that does not exist, instead of failing in every trial.

    ``auto`` and ``cpu`` are not tested, others in a process for each backend. A backend that cannot
    drive the device at all is accepted, unless none of ``infos`` can: its trials end as
    ``unsupported``.
    """
    kind, _ = parse_device(device)
    if kind in ("auto", "cpu"):
        return
    refused = []
    for info in infos:
        status, reason = probe_device(info, device)
        if status == "failed":
            raise UserError(f"{info.name}: {reason}")
        if status == "unsupported":
            refused.append(f"{info.name}: {reason}")
    if len(refused) == len(infos):
        raise UserError("; ".join(refused))


def probe_device(info: BackendInfo, device: str) -> tuple[str, str]:
    """Create the backend on the device in a process of its own, for a test; return ``ok``,
    ``unsupported`` or ``failed``, and the reason (empty for ``ok``)."""
    words = python_argv("-c", PROBE, info.name, device)
    ended = run_bounded(words, 120, {**os.environ, **info.environ(1)})
    try:
        status, reason = json.loads(ended.out.strip().splitlines()[-1])
        return str(status), str(reason)
    except (IndexError, ValueError):
        return "failed", f"could not be started on device {device} (exit code {ended.code})"
