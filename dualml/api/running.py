"""Experiments from Python: the same path as ``dualml run``, without its command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from dualml.api.runs import Run, load
from dualml.api.tools import listed
from dualml.errors import UserError
from dualml.words import Words


def run(
    lab: str | PathLike[str] | None = None,
    *,
    backend: str | Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    arms: str | Sequence[str] = (),
    seeds: int | Sequence[int] = (),
    data: str | None = None,
    model: str | None = None,
    world_size: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    quick: bool = False,
    resume: str | PathLike[str] | None = None,
    lang: str | None = None,
    report: bool = True,
    find: bool = True,
    tensorboard: bool = False,
    progress: bool = True,
) -> Run:
    """Train an experiment and judge it: ``dualml run``.

    Trials run in processes of their own, so that this one imports no framework. A trial that fails
    is a trial of what is returned, with ``status`` and ``reason``.

    Args:
        lab: an experiment that comes with dualml (``"lab1"``, see `experiments`), or the path of a
            TOML file.
        backend: ``"torch"``, ``"mindspore"``, ``"numpy"`` (the referee), several of them, or
            ``"all"``; every installed framework when omitted.
        out: the run folder, new; ``runs/LAB-DATE-TIME`` when omitted.
        name: takes the place of ``LAB`` in the folder's name.
        settings: dotted keys of the experiment's file and their values, or tables in tables:
            ``{"arms.adam.optimizer.lr": 3e-3}``.
        arms: arms or groups; the experiment's first group when omitted.
        seeds: in place of the experiment's.
        data: the dataset, in place of the experiment's; then no other stands in for it.
        model: in place of the experiment's.
        world_size: ranks of every arm that has several.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"npu"``; chosen when omitted.
        threads: of each process; chosen when omitted.
        quick: the experiment's own short version.
        resume: a run folder to go on with, in place of ``lab`` and all that decides the numbers.
        lang: of the report and of what is shown, ``en`` or ``zh``; English when omitted, of a
            resumed run its own.
        report: write the report.
        find: look for the cause where backends differ.
        tensorboard: write curves for TensorBoard into the run folder as trials run.
        progress: show on standard error what is at work, as the command does.

    Raises:
        UserError: wrong input; nothing has been trained then.
        KeyboardInterrupt: it was interrupted; ``resume`` goes on with the run folder.

    Example:
        >>> done = dualml.run("lab1", backend="numpy", arms=["adam"], quick=True, progress=False)
        >>> done.plot.loss()
    """
    from dualml.launch.adopted import adopted
    from dualml.session.execute import execute
    from dualml.session.perform import INTERRUPTED
    from dualml.session.prepare import Request

    if (there := adopted()) is not None:
        raise UserError(
            f"dualml.run starts the ranks itself; call it without {there.launcher}, or start "
            f"`dualml run` by {there.launcher}"
        )
    done = execute(
        Request(
            lab=None if lab is None else str(lab),
            backend=",".join(listed(backend)) or None,
            out=None if out is None else Path(out),
            name=name,
            overrides=list(overrides(settings or {})),
            arms=listed(arms),
            seeds=listed(seeds),
            data=data,
            model=model,
            device=device,
            threads=threads,
            quick=quick,
            resume=None if resume is None else Path(resume),
            lang=lang,
            report=report,
            world_size=world_size,
            find=find,
            tensorboard=tensorboard,
            progress=progress,
        )
    )
    assert done.folder is not None  # only ranks of a launcher have none
    if done.code == INTERRUPTED:
        raise KeyboardInterrupt
    return load(done.folder.path)


def experiments(lang: str = "en") -> dict[str, str]:
    """The experiments that come with dualml: name → title.

    Args:
        lang: ``en`` or ``zh``.

    Raises:
        UserError: another language.
    """
    from dualml.experiment.find import names
    from dualml.files import read_toml

    lang = Words(lang).lang
    return {name: read_toml(path)["title"][lang] for name, path in names().items()}


def overrides(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """As ``--set`` takes them: ``KEY=VALUE`` with a value in TOML.

    Raises:
        UserError: a value that TOML has not.
    """
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from overrides(value, f"{name}.")
            continue
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            text = "null"
        if text == "null":
            raise UserError(
                f"settings: {name} must be a number, a text, True, False or a list of those; "
                f"received {value!r}"
            )
        yield f"{name}={text}"
