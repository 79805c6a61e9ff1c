"""A whole run: freeze the plan, run the trials, judge, report."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.backend import Adopted, BackendInfo, backends, choose
from dualml.errors import UserError
from dualml.launch.adopted import (
    adopted,
    announce_end,
    check_fresh,
    follow,
    help_ranks,
)
from dualml.launch.adopted import check as check_adopted
from dualml.launch.child import on_death_of_parent
from dualml.store.folder import RunFolder, check_free, in_use
from dualml.store.manifest import Options, read_run

if TYPE_CHECKING:
    from dualml.experiment.plan import Plan

INTERRUPTED, DIFFERENT, FAILED, WELL = 130, 3, 1, 0
ADOPTED_WAIT_S = 7200.0  # that a rank of a launcher waits for what rank 0 announces


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for, as on the command line."""

    lab: str | None
    backend: str | None = None
    out: Path | None = None
    overrides: Sequence[str] = ()
    arms: Sequence[str] = ()
    seeds: Sequence[int] = ()
    data: str | None = None
    device: str | None = None
    threads: int | None = None
    quick: bool = False
    resume: Path | None = None
    lang: str | None = None
    report: bool = True
    quiet: bool = False
    world_size: int | None = None
    rendezvous: str | None = None
    check: bool = False
    find: bool = True


@dataclass(frozen=True)
class Done:
    """How a run ended.

    Attributes:
        code: the exit code.
        folder: None for a rank of a launcher that only did its part.
        parity: the content of ``parity.json``; empty where it was interrupted before.
    """

    code: int
    folder: RunFolder | None = None
    parity: Mapping[str, Any] = field(default_factory=dict)


def execute(request: Request) -> Done:
    """Run the whole of it.

    Raises:
        UserError: wrong input, before anything is written.
    """
    found = adopted()
    if found is not None:
        on_death_of_parent(signal.SIGTERM)  # a launcher that is killed takes nobody with it
        if request.resume:
            raise UserError(f"--resume goes on without {found.launcher}: it starts its own ranks")
        check_adopted(found, request.out, request.world_size, request.backend, request.rendezvous)
        if found.rank != 0:
            return assist(found, request)
        request = replace(request, world_size=found.size, backend=found.backend)
    elif (request.rendezvous or "").startswith("env:"):
        raise UserError(
            "--rendezvous env:// is for ranks that torchrun or msrun starts; leave it out"
        )
    with contextlib.ExitStack() as held:
        if request.resume:
            refuse_settings(request)
            read_run(request.resume)  # nothing is written into a folder that is none of ours
            held.enter_context(in_use(request.resume))
            folder, plan, infos = resume(request)
        else:
            folder, plan, infos = prepare(request)
            held.enter_context(in_use(folder.path))
        if found is not None:
            held.callback(announce_end, folder.path)
        return perform(request, folder, plan, infos, found)


def assist(found: Adopted, request: Request) -> Done:
    """What the other ranks of a launcher do: their part of what rank 0 announces."""
    path = request.out
    assert path is not None
    check_fresh(path)
    info = backends()[found.backend]
    environ = info.environ(request.threads or 0)
    if found.rank < 0:
        help_ranks(found, path, environ, ADOPTED_WAIT_S)
    else:
        follow(found, path, environ, ADOPTED_WAIT_S)
    return Done(WELL)


def perform(
    request: Request,
    folder: RunFolder,
    plan: Plan,
    infos: Sequence[BackendInfo],
    found: Adopted | None = None,
) -> Done:
    """Run the trials that have not ended, judge and report."""
    from dualml.parity.judge import judge, worst, write
    from dualml.session.costs import write_costs
    from dualml.session.progress import Bars
    from dualml.session.trials import run_trials

    options, lang = folder.run.options, request.lang or folder.run.lang
    try:
        environs = environments(infos, options.threads, lang, request.quiet)
        with Bars(len(folder.pending()), lang, request.quiet) as bars:
            known = {info.name: info for info in infos}
            run_trials(folder, plan, known, environs, bars, found)
    except KeyboardInterrupt:
        folder.write()
        told = {"en": "interrupted; continue with", "zh": "已中断；继续运行"}[lang]
        print(f"dualml: {told}: dualml run --resume {folder.path}", file=sys.stderr)
        return Done(INTERRUPTED, folder)
    write_costs(folder, plan)
    parity = judge(folder.path)
    write(folder.path, parity)
    if request.find and found is None:
        search(folder, plan, infos, environs, parity, lang, quiet=request.quiet)
    if request.report:
        from dualml.report import render

        render([folder.path], lang=lang)
    statuses = {trial.status for trial in folder.trials.values()}
    if statuses & {"failed", "interrupted"} or statuses <= {"unsupported"}:
        return Done(FAILED, folder, parity)
    return Done(DIFFERENT if worst(parity) == "different" else WELL, folder, parity)


def search(
    folder: RunFolder,
    plan: Plan,
    infos: Sequence[BackendInfo],
    environs: dict[str, Any],
    parity: dict[str, Any],
    lang: str,
    *,
    quiet: bool,
    most: int = 3,
) -> list[dict[str, Any]]:
    """Where and why backends differ, if any do: into ``findings.json``."""
    from dualml.finder.find import findings, suspicious
    from dualml.finder.paragraph import with_text
    from dualml.finder.replays import Session
    from dualml.store.findings import write_findings

    judged = [*parity["comparisons"], *parity.get("serial", ())]
    trials = folder.trials.values()
    failed = any(trial.status == "failed" for trial in trials)
    if not failed and not any(suspicious(c) for c in judged):
        write_findings(folder.path, [])
        return []
    from rich.console import Console

    known = backends()
    for name in ("numpy", *(trial.backend for trial in trials)):
        if name in known and name not in environs and known[name].installed():
            environs[name] = known[name].environ(folder.run.options.threads)
    words = {"en": "looking for the cause", "zh": "正在查找原因"}[lang]
    with Console(stderr=True, quiet=quiet).status(words) as status:
        session = Session(
            folder=folder, plan=plan, infos=known, environs=environs,
            progress=lambda text: status.update(f"{words}: {text}"),
        )  # fmt: skip
        found = findings(session, parity, most)
    write_findings(folder.path, [with_text(finding) for finding in found])
    return found


def environments(
    infos: Sequence[BackendInfo], threads: int, lang: str, quiet: bool
) -> dict[str, Any]:
    """Environment variables of each backend's workers; the first time this measures the machine."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    words = {"en": "preparing", "zh": "准备"}
    with console.status(words.get(lang, "preparing")):
        return {info.name: info.environ(threads) for info in infos}


def prepare(request: Request) -> tuple[RunFolder, Any, list[BackendInfo]]:
    """Everything that can be wrong is found here, cheapest first, before the first trial."""
    from dualml.data import load as load_data
    from dualml.experiment.freeze import freeze
    from dualml.experiment.load import load as load_experiment
    from dualml.machine import default_threads

    if request.lab is None:
        raise UserError("name an experiment, as in `dualml run lab1`, or --resume DIR")
    infos = choose(request.backend)
    explicit = request.data is not None or any(o.startswith("data.name") for o in request.overrides)
    experiment = load_experiment(
        request.lab,
        overrides=request.overrides,
        arms=request.arms,
        seeds=request.seeds,
        data=request.data,
        quick=request.quick,
        world_size=request.world_size,
    )
    if max(arm.world_size for arm in experiment.arms.values()) == 1:
        for option, value in (("--rendezvous", request.rendezvous), ("--check", request.check)):
            if value:
                raise UserError(
                    f"{option}: no arm of {experiment.name} that runs has several ranks"
                )
    device = request.device or "auto"
    check_devices(infos, device)
    out = request.out or default_out(experiment.name)
    check_free(out)
    sizes = {"words": experiment.data.words, "length": experiment.data.length}
    plan = freeze(experiment, load_data(experiment.data.name, explicit=explicit, **sizes))
    options: dict[str, Any] = {"device": device, "threads": request.threads or default_threads()}
    if any(arm.world_size > 1 for arm in experiment.arms.values()):
        options |= {"rendezvous": request.rendezvous or "auto", "check": request.check}
        options["threads_asked"] = bool(request.threads)
    names = [info.name for info in infos]
    folder = RunFolder.create(out, plan, names, request.lang or "en", Options(**options))
    return folder, plan, infos


def default_out(name: str) -> Path:
    """A folder that is not there yet, also when two runs begin in one second."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = Path("runs") / f"{name}-{stamp}"
    others = (first.with_name(f"{first.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def refuse_settings(request: Request) -> None:
    """Raises `UserError` where --resume comes with what the run folder says already."""
    given = {
        "--set": request.overrides,
        "--arm": request.arms,
        "--seed": request.seeds,
        "--data": request.data,
        "--quick": request.quick,
        "--out": request.out,
        "--backend": request.backend,
        "--device": request.device,
        "--threads": request.threads,
        "--world-size": request.world_size,
        "--rendezvous": request.rendezvous,
        "--check": request.check,
    }
    for option, value in given.items():
        if value not in (None, False, (), []):
            raise UserError(f"--resume goes on with what {request.resume} says; leave out {option}")


def resume(request: Request) -> tuple[RunFolder, Any, list[BackendInfo]]:
    """Go on with a run folder, as its run.json says."""
    from dualml.data import load_again
    from dualml.experiment.find import locate, names, read

    path = request.resume
    assert path is not None
    name = read_run(path).name
    if request.lab and request.lab != name:
        there = Path(request.lab).is_file() or request.lab in names()
        if not there or read(locate(request.lab)).get("name") != name:
            raise UserError(f"{path} is a run of {name}, not of {request.lab}")
    folder, plan = RunFolder.open(path)
    known = backends()
    needed = list(dict.fromkeys(trial.backend for trial in folder.pending()))
    for name in needed:
        if name not in known or not known[name].installed():
            hint = f"; install it with: {known[name].install}" if name in known else ""
            raise UserError(f"{path} needs backend {name!r}, which is not installed{hint}")
    if needed:
        load_again(plan.data)
    return folder, plan, [known[name] for name in needed]


def check_devices(infos: Sequence[BackendInfo], device: str) -> None:
    """A device that is not there is an error now, not in every trial.

    A backend that cannot drive the device at all stays: its trials say ``unsupported``.
    """
    from dualml.machine import parse_device

    kind, _ = parse_device(device)
    if kind in ("auto", "cpu"):
        return
    refused = []
    for info in infos:
        status, reason = probe(info, device)
        if status == "failed":
            raise UserError(f"{info.name}: {reason}")
        refused += [f"{info.name}: {reason}"] if status == "unsupported" else []
    if len(refused) == len(infos):
        raise UserError("; ".join(refused))


def probe(info: BackendInfo, device: str) -> tuple[str, str]:
    """Make the backend on the device, in a process of its own: a trial's status and reason."""
    import json
    import os

    from dualml.machine import bounded

    code = (
        "import json, sys\n"
        "from dualml.backend import backends\n"
        "from dualml.launch.child import reason_of\n"
        "try:\n"
        "    backends()[sys.argv[1]].create(sys.argv[2])\n"
        "    told = ['ok', '']\n"
        "except BaseException as error:\n"
        "    told = list(reason_of(error))\n"
        "print('\\n' + json.dumps(told))\n"
    )
    found = bounded(
        [sys.executable, "-c", code, info.name, device], 120, {**os.environ, **info.environ(1)}
    )
    try:
        status, reason = json.loads(found.out.strip().splitlines()[-1])
        return str(status), str(reason)
    except (IndexError, ValueError):
        return "failed", f"could not be started on device {device} (exit code {found.code})"
