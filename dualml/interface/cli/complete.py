"""Shell completion of names, read from file names and TOML files.

A completion has to answer within a tenth of a second, so nothing heavy is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from dualml.common.words import load_messages
from dualml.interface.cli.command_group import prepare_subcommands
from dualml.interface.cli.help import command_parameters

PACKAGE = Path(__file__).resolve().parents[2]
RUN = "run.json"


def skip_checks(command: Any) -> None:
    """Make a command and its subcommands accept the values of all parameters unchecked: the checks
    would import pydantic."""
    for parameter in command_parameters(command):
        parameter.process_value = lambda ctx, value: value
    prepare_subcommands(command, lambda name, sub: skip_checks(sub))


def labs() -> Iterable[str]:
    """List the names of the experiments that come with dualml."""
    from dualml.experiment.find import experiment_files

    return experiment_files()


def exercises() -> Iterable[str]:
    """List the labs with exercises for students."""
    known = labs()
    return [name for name in known if (PACKAGE / "course" / name).is_dir()]


def arms(context: typer.Context) -> list[str]:
    """List the arms and groups, and ``all``, of the experiment that stands before on the command
    line, or the arms only of a run folder; empty if there is neither."""
    from dualml.common.errors import UserError
    from dualml.common.files import read_json, read_toml
    from dualml.experiment.find import locate

    named = (context.params.get(name) for name in ("lab", "what", "folder", "resume"))
    # While the option has no value yet, preceding words are not assigned to parameters.
    word = str(next(filter(None, [*named, *context.args]), ""))
    try:
        if (Path(word) / RUN).is_file():
            return list({trial["arm"]: None for trial in read_json(Path(word) / RUN)["trials"]})
        tables = read_toml(locate(word)).get("arms", {})
        groups = (arm["group"] for arm in tables.values() if "group" in arm)
        return [*tables, *dict.fromkeys(groups), "all"]
    except (OSError, UserError, KeyError, TypeError, AttributeError):
        return []


def backends() -> list[str]:
    """List the names of the backends that are registered, whether or not their framework is
    installed, and ``both`` and ``all``."""
    from importlib.metadata import entry_points

    return [*(point.name for point in entry_points(group="dualml.backends")), "both", "all"]


def devices() -> list[str]:
    """List common device names to suggest for ``--device``, which accepts others, too."""
    return ["auto", "cpu", "cuda", "cuda:0", "gpu", "ascend"]


def datasets() -> list[str]:
    """List the names of all datasets."""
    return [
        name
        for kind in _read_package_toml("experiment/data/datasets.toml").values()
        for name in kind
    ]


def networks() -> list[str]:
    """List the names of all models of the model zoo."""
    from dualml.algorithms.model.zoo import model_names

    return model_names()


def models() -> list[str]:
    """List the names of the planner's published models; dualml's own decoders are not among
    them."""
    return list(_read_package_toml("planning/planner/models.toml")["model"])


def differences() -> list[str]:
    """List the entries of the catalogue of differences, from their headings only, for speed."""
    texts = (path.read_text("utf-8") for path in _topic_files())
    return [head for text in texts for head in re.findall(r'^\["?([\w.-]+)"?\]$', text, re.M)]


def topics() -> list[str]:
    """List the topics of the catalogue of differences."""
    return [path.stem for path in _topic_files()]


def _topic_files() -> list[Path]:
    """Return the files of the catalogue of differences, sorted by name."""
    return sorted((PACKAGE / "parity/diffs/entries").glob("*.toml"))


def strategies() -> list[str]:
    """List the aggregation strategies."""
    return _message_names("aggregation", "strategy.")


def partitions() -> list[str]:
    """List the partition rules."""
    return _message_names("cli", "partition.rule.")


def schemas() -> list[str]:
    """List the JSON schemas."""
    from dualml.interface.schemas import schema_names

    return schema_names()


def runs() -> list[str]:
    """List the run folders in ``runs/`` and in the current folder as relative paths, those whose
    ``run.json`` was changed last first."""
    found = [*Path("runs").glob(f"*/{RUN}"), *Path().glob(f"*/{RUN}")]
    times = {path.parent.as_posix(): path.stat().st_mtime for path in found}
    return sorted(times, key=lambda name: -times[name])


def jobs() -> list[str]:
    """List the numbers of jobs, the newest first."""
    from dualml.runner.jobs.folders import job_numbers

    return [str(number) for number in reversed(job_numbers())]


def jobs_and_runs() -> list[str]:
    """List the jobs, then the run folders."""
    return [*jobs(), *runs()]


def languages() -> list[str]:
    """List the languages of the output."""
    return ["en", "zh"]


def _read_package_toml(name: str) -> dict[str, Any]:
    """Read a TOML file of the package."""
    from dualml.common.files import read_toml

    return read_toml(PACKAGE / name)


def _message_names(file: str, prefix: str) -> list[str]:
    """List the keys of an English message file that begin with a prefix, without it."""
    return [key.removeprefix(prefix) for key in load_messages("en", file) if key.startswith(prefix)]
