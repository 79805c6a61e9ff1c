"""Run experiments from Python, through the same code path as ``dualml run``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from dualml.common.errors import UserError
from dualml.common.json_types import JsonMapping
from dualml.common.words import Messages
from dualml.interface.api.runs import Run, load


def run(
    lab: str | PathLike[str] | None = None,
    *,
    backend: str | Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    settings: JsonMapping | None = None,
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
    """Train an experiment and compare its backends, as ``dualml run`` does.

    Trials run in processes of their own, so this process imports no framework. A failed trial is
    part of the result; its ``status`` and ``reason`` say what happened.

    Args:
        lab: an experiment that comes with dualml (``"lab1"``, see `experiments`), or the path of a
            TOML file.
        backend: ``"torch"``, ``"mindspore"``, ``"numpy"`` (the reference), several of them, or
            ``"all"``; every installed framework when omitted.
        out: the run folder, which must not exist; ``runs/LAB-DATE-TIME`` when omitted.
        name: replaces ``LAB`` in the folder's name.
        settings: dotted keys of the experiment file and their values, or nested tables:
            ``{"arms.adam.optimizer.lr": 3e-3}``.
        arms: arms or groups; the experiment's first group when omitted.
        seeds: replace those of the experiment.
        data: replaces the dataset of the experiment, and allows no substitute for it.
        model: replaces the model of the experiment.
        world_size: number of ranks of every arm that has more than one.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"npu"``; chosen when omitted.
        threads: threads of each process; chosen when omitted.
        quick: run the short version that the experiment defines.
        resume: a run folder to continue, instead of ``lab`` and all settings of the training.
        lang: language of the report and the output, ``en`` or ``zh``; English when omitted, or
            the language of the run that is resumed.
        report: write the report.
        find: search for the cause if backends differ.
        tensorboard: write curves for TensorBoard into the run folder while trials run.
        progress: show progress on standard error, as the command does.

    Raises:
        UserError: invalid input; nothing has been trained.
        KeyboardInterrupt: the run was interrupted; continue its folder with ``resume``.

    Example:
        >>> done = dualml.run("lab1", backend="numpy", arms=["adam"], quick=True, progress=False)
        >>> done.plot.loss()
    """
    given = dict(locals())
    from dualml.launch.external import detect_external_launch
    from dualml.runner import run as runner
    from dualml.runner.outcome import EXIT_INTERRUPTED
    from dualml.runner.request import RunRequest

    if (there := detect_external_launch()) is not None:
        raise UserError(
            f"dualml.run starts the ranks itself; call it without {there.launcher}, or start "
            f"`dualml run` by {there.launcher}"
        )
    overrides = tuple(settings_to_overrides(given.pop("settings") or {}))
    done = runner.run(RunRequest(**given, overrides=overrides))
    assert done.folder is not None  # only ranks of a launcher have none
    if done.code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return load(done.folder.path)


def experiments(lang: str = "en") -> dict[str, str]:
    """Return the experiments that come with dualml, as name → title.

    Args:
        lang: language of the titles, ``en`` or ``zh``.

    Raises:
        UserError: the language is unknown.
    """
    from dualml.common.files import read_toml
    from dualml.experiment.find import experiment_files

    lang = Messages(lang).lang
    return {name: read_toml(path)["title"][lang] for name, path in experiment_files().items()}


def settings_to_overrides(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield nested settings as ``KEY=VALUE``, the form that ``--set`` takes, with values in TOML.
    ``above`` is put before every key.

    Raises:
        UserError: a value cannot be written in TOML.
    """
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from settings_to_overrides(value, f"{name}.")
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
