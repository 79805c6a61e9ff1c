"""What a shell offers where an option or argument takes a name: read from names of files and from
TOML files, as an answer may take a tenth of a second."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from dualml.cli.help import parameters
from dualml.words import table

PACKAGE = Path(__file__).resolve().parent.parent
RUN = "run.json"


def unchecked(command: Any) -> None:
    """Take the values of all parameters as they are typed: what checks them imports pydantic."""
    for parameter in parameters(command):
        parameter.process_value = lambda ctx, value: value
    for sub in getattr(command, "commands", {}).values():
        unchecked(sub)


def labs() -> Iterable[str]:
    from dualml.experiment.find import names

    return names()


def exercises() -> Iterable[str]:
    """Labs that are written by students."""
    known = labs()
    return [name for name in known if (PACKAGE / "course" / name).is_dir()]


def arms(context: typer.Context) -> list[str]:
    """Arms and their groups, of the lab or the run that stands before."""
    from dualml.errors import UserError
    from dualml.experiment.find import locate
    from dualml.files import read_json, read_toml

    named = (context.params.get(name) for name in ("lab", "what", "folder", "resume"))
    # Where the option has no value yet, what stands before it is not assigned.
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
    from importlib.metadata import entry_points

    return [*(point.name for point in entry_points(group="dualml.backends")), "both", "all"]


def devices() -> list[str]:
    return ["auto", "cpu", "cuda", "cuda:0", "gpu", "ascend"]


def datasets() -> list[str]:
    return [name for kind in _table("data/datasets.toml").values() for name in kind]


def networks() -> list[str]:
    """Models of the zoo."""
    from dualml.model.zoo import known

    return known()


def models() -> list[str]:
    return list(_table("planner/models.toml")["model"])


def differences() -> list[str]:
    """The heads of the entries' tables: to parse all of them would take too long."""
    texts = ((PACKAGE / "diffs/entries" / f"{name}.toml").read_text("utf-8") for name in topics())
    return [head for text in texts for head in re.findall(r'^\["?([\w.-]+)"?\]$', text, re.M)]


def topics() -> list[str]:
    return [path.stem for path in sorted((PACKAGE / "diffs/entries").glob("*.toml"))]


def strategies() -> list[str]:
    return _named("aggregation", "strategy.")


def partitions() -> list[str]:
    return _named("cli", "partition.rule.")


def schemas() -> list[str]:
    from dualml.schemas import names

    return names()


def runs() -> list[str]:
    """Run folders in ``runs/`` and in the current folder, the newest first."""
    found = [*Path("runs").glob(f"*/{RUN}"), *Path().glob(f"*/{RUN}")]
    times = {path.parent.as_posix(): path.stat().st_mtime for path in found}
    return sorted(times, key=lambda name: -times[name])


def jobs() -> list[str]:
    """Numbers of jobs, the last one first."""
    from dualml.jobs.place import numbers

    return [str(number) for number in reversed(numbers())]


def jobs_and_runs() -> list[str]:
    return [*jobs(), *runs()]


def languages() -> list[str]:
    return ["en", "zh"]


def _table(name: str) -> dict[str, Any]:
    from dualml.files import read_toml

    return read_toml(PACKAGE / name)


def _named(file: str, prefix: str) -> list[str]:
    """What the words of a file describe."""
    return [key.removeprefix(prefix) for key in table("en", file) if key.startswith(prefix)]
