"""A student's workspace: the folder with the exercises of a lab, made and read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import read_toml, write_bytes
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.common.version import __version__
from dualml.common.words import LANGUAGES, Messages
from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.labs import load_lab as lab_of
from dualml.course.skeletons import make_skeleton

#: Version of the folder's layout and of the exercises' names.
FORMAT = 1
NAME = "workspace.toml"
BACKENDS = {"torch": ("torch",), "mindspore": ("mindspore",), "both": ("torch", "mindspore")}


class WorkspaceSettings(StrictModel):
    """The content of ``workspace.toml``."""

    format: int
    dualml: str
    lab: str
    backends: list[Literal["torch", "mindspore"]]
    lang: Literal["en", "zh"]


@dataclass(frozen=True)
class Workspace:
    """A folder with the exercises of a lab.

    Attributes:
        files: the exercises in the folder.
    """

    path: Path
    settings: WorkspaceSettings
    lab: Lab

    @property
    def files(self) -> list[ExerciseFile]:
        """Exercises of the lab for the workspace's backends."""
        return select_files(self.lab, self.settings.backends)


def select_files(lab: Lab, backends: Sequence[str]) -> list[ExerciseFile]:
    """Return the files of a lab for these frameworks; files that need none are always included."""
    return [f for f in lab.files if not f.backend or f.backend in backends]


def create_workspace(name: str, path: Path, backend: str, lang: str, notebook: bool) -> list[Path]:
    """Make a workspace: settings, skeletons, pages about the tasks, ``report.md`` and a Makefile;
    return the paths of its files.

    Args:
        name: the lab.
        path: folder, which is made if it is missing.
        backend: ``torch``, ``mindspore`` or ``both``.
        lang: ``en`` or ``zh``.
        notebook: make a notebook of all tasks, too.

    Raises:
        UserError: the lab, framework or language is unknown, or the folder is not empty.
    """
    lab = lab_of(name)
    if backend not in BACKENDS:
        raise UserError(f"unknown --backend {backend!r}{did_you_mean(backend, BACKENDS)}")
    if lang not in LANGUAGES:
        raise UserError(f"--lang must be en or zh; received {lang!r}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already and not empty; name another folder")
    path.mkdir(parents=True, exist_ok=True)
    backends = BACKENDS[backend]
    values = {
        "format": FORMAT,
        "dualml": __version__,
        "lab": name,
        "backends": list(backends),
        "lang": lang,
    }
    settings = WorkspaceSettings.model_validate(values)
    wanted = select_files(lab, backends)
    texts = {file.name: read_skeleton(file, name, lang) for file in wanted}
    pages = {f"{task}.md": read_page(name, task, lang) for task in task_names(wanted)}
    words = Messages(lang)
    other = {
        NAME: "\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.model_dump().items()) + "\n",
        "report.md": read_page(name, "report", lang),
        "Makefile": words("course.makefile").replace("    ", "\t") + "\n",
    }
    if notebook:
        cells = [
            (pages[f"{task}.md"], [f for f in wanted if task_stem(f) == task])
            for task in task_names(wanted)
        ]
        other[f"{name}.ipynb"] = make_notebook(cells, texts)
    for file, text in {**texts, **pages, **other}.items():
        write_bytes(path / file, text.encode())
    return [path / file for file in (*texts, *pages, *other)]


def read_skeleton(file: ExerciseFile, lab: str, lang: str) -> str:
    """Return the skeleton of a file, with comments and docstrings in Chinese for ``zh``, else in
    English."""
    return make_skeleton(read_solution(file), read_translations(lab) if lang == "zh" else {})


def read_solution(file: ExerciseFile) -> str:
    """Read our solution of a file."""
    package, _, name = file.solution.partition(":")
    return (files(package) / name).read_text("utf-8")


def read_translations(lab: str) -> dict[str, str]:
    """Return English line of a skeleton → Chinese line."""
    text = (files("dualml.course") / "pages" / lab / "lines.zh.toml").read_text("utf-8")
    table: dict[str, str] = tomllib.loads(text)["lines"]
    return table


def read_page(lab: str, task: str, lang: str) -> str:
    """Return the Markdown page about a task of a lab, or for ``report`` the report to fill in, in
    this language."""
    return (files("dualml.course") / "pages" / lab / f"{task}.{lang}.md").read_text("utf-8")


def task_stem(file: ExerciseFile) -> str:
    """Return the task that both frameworks' files share, as ``optim`` for ``optim_torch.py``."""
    return file.task.removesuffix("_torch").removesuffix("_ms")


def task_names(wanted: Sequence[ExerciseFile]) -> list[str]:
    """Return the tasks of these files (`task_stem`), without duplicates, in their order."""
    return list(dict.fromkeys(task_stem(file) for file in wanted))


def make_notebook(
    cells: Sequence[tuple[str, Sequence[ExerciseFile]]], texts: dict[str, str]
) -> str:
    """Make a notebook (nbformat 4) that writes the files, checks them and makes the report; return
    its JSON text.

    Args:
        cells: (Markdown text about a task, its files), for each task.
        texts: name of each file → its skeleton.
    """
    made: list[dict[str, object]] = []

    def add_cell(kind: str, text: str) -> None:
        """Append one cell."""
        more: dict[str, object] = {"outputs": [], "execution_count": None} if kind == "code" else {}
        made.append(
            {
                "cell_type": kind,
                "id": f"cell-{len(made)}",
                "metadata": {},
                "source": text.splitlines(keepends=True),
                **more,
            }
        )

    for text, own in cells:
        add_cell("markdown", text)
        for file in own:
            add_cell("code", f"%%writefile {file.name}\n{texts[file.name]}")
            add_cell("code", f"!dualml check {file.task}")
    add_cell("code", "!dualml report .")
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def is_workspace(path: Path) -> bool:
    """Return whether a folder has the file that marks a workspace, valid or not."""
    return (path / NAME).is_file()


def open_workspace(path: Path) -> Workspace:
    """Open the workspace in a folder.

    Raises:
        UserError: the folder is no workspace, or one of another version, or its settings are
            invalid.
    """
    file = path / NAME
    if not file.is_file():
        raise UserError(
            f"{path} is no workspace: there is no {NAME}; make one with: dualml new lab1 DIR"
        )
    table = read_toml(file)
    if table.get("format") != FORMAT:
        raise UserError(
            f"{file} is of format {table.get('format')!r}, this dualml {__version__} reads "
            f"{FORMAT}; make a new workspace with `dualml new` and copy your files into it, or "
            f"install dualml {table.get('dualml', '')}"
        )
    try:
        settings = WorkspaceSettings.model_validate(table)
    except ValidationError as error:
        raise UserError(f"{file}: {describe_validation_error(error, WorkspaceSettings)}") from None
    return Workspace(path, settings, lab_of(settings.lab))
