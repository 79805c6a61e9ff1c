"""The request for a run: one record, whether the command line, Python or a job asks for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, ValidationError, model_validator

from dualml.common.errors import UserError
from dualml.common.machine import MAX_THREADS
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.common.words import Messages

if TYPE_CHECKING:
    from dualml.experiment.schema import Experiment

#: Fields that the run folder decides where a run is resumed, by the option that sets each.
DECIDED_BY_FOLDER = {
    "set": "overrides",
    "arm": "arms",
    "seed": "seeds",
    **{name: name for name in ("data", "model", "quick", "out", "backend", "device", "threads")},
    **{name: name for name in ("rendezvous", "check")},
}


def join_names(names: Any) -> Any:
    """Join a list or tuple of names with commas, to None if it is empty; return anything else
    unchanged."""
    return ",".join(names) or None if isinstance(names, list | tuple) else names


def make_tuple(values: Any) -> Any:
    """Return a single text or integer as a tuple of one, None as an empty tuple, and anything else
    unchanged."""
    return () if values is None else (values,) if isinstance(values, str | int) else values


def path_text(path: Any) -> Any:
    """Return a path as text, and anything else unchanged."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


class RunRequest(StrictModel):
    """The options of ``dualml run``, which `dualml.run` and a job's command line share.

    Attributes:
        lab: a name, or the path of a TOML file; None for a run that is resumed.
        backend: names with commas in between, ``both`` or ``all``; None for every framework.
        overrides: ``KEY=VALUE`` as ``--set`` takes them.
        rank: of this process, where the user starts the ranks.
        hosts: a file that says which machines take part.
        report, find, progress: whether to write the report, search for causes, show progress.

    Raises:
        UserError: a value of the wrong type or out of range, or a combination that does not exist.
    """

    model_config = ConfigDict(strict=False)  # Python users may give a path as text

    lab: Annotated[str | None, BeforeValidator(path_text)] = None
    backend: Annotated[str | None, BeforeValidator(join_names)] = None
    out: Path | None = None
    name: str | None = None
    overrides: tuple[str, ...] = ()
    arms: Annotated[tuple[str, ...], BeforeValidator(make_tuple)] = ()
    seeds: Annotated[tuple[int, ...], BeforeValidator(make_tuple)] = ()
    data: str | None = None
    model: str | None = None
    device: str | None = None
    threads: int | None = None
    quick: bool = False
    resume: Path | None = None
    lang: str | None = None
    report: bool = True
    world_size: int | None = None
    rendezvous: str | None = None
    check: bool = False
    find: bool = True
    rank: int | None = None
    hosts: Path | None = None
    insecure: bool = False
    keep_local: bool = False
    progress: bool = True
    tensorboard: bool = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(describe_validation_error(error, RunRequest)) from None

    @model_validator(mode="after")
    def check_values(self) -> Self:
        """Check ranges, texts and combinations, and that TensorBoard's library is installed if it
        is asked for; raise `UserError` for the first fault. Return the request itself."""
        from dualml.algorithms.communicator.rendezvous import check_rendezvous
        from dualml.experiment.arm import MAX_RANKS
        from dualml.runner.jobs.sbatch import check_name

        ranks, threads = self.world_size, self.threads
        if ranks is not None and not 1 <= ranks <= MAX_RANKS:
            raise UserError(f"--world-size must be from 1 to {MAX_RANKS}; received {ranks}")
        if threads is not None and not 0 <= threads <= MAX_THREADS:
            raise UserError(f"--threads must be from 0 to {MAX_THREADS}; received {threads}")
        check_name(self.name)
        if self.name is not None:
            for option, value in (("--out", self.out), ("--resume", self.resume)):
                if value is not None:
                    raise UserError(f"{option} says which folder it is; leave out --name")
        if self.rendezvous is not None:
            check_rendezvous(self.rendezvous)
        if self.lang is not None:
            Messages(self.lang)
        if self.tensorboard:
            from dualml.report.export.base import require_library

            require_library("tensorboard", "tensorboard")
        return self

    def with_values(self, **values: Any) -> RunRequest:
        """Return a new request with other values of some fields; all fields are checked anew."""
        return RunRequest(**{**dict(self), **values})

    def to_resume(self, folder: Path, *, out: Path | None) -> RunRequest:
        """Return the request that resumes this run in ``folder``: without the experiment, its name,
        and the fields that the folder decides, and without rank, hosts and number of ranks. The
        rendezvous stays, and ``out`` is the given one."""
        left = {name: RunRequest.model_fields[name].default for name in DECIDED_BY_FOLDER.values()}
        kept = {"rendezvous": self.rendezvous, "out": out, "resume": folder}
        none: dict[str, Any] = dict.fromkeys(("lab", "name", "world_size", "rank", "hosts"))
        return self.with_values(**{**left, **none, **kept})

    def check_resumable(self) -> None:
        """Raise `UserError` if a field is set that the run folder decides (`DECIDED_BY_FOLDER`),
        such as the seeds."""
        for option, field in DECIDED_BY_FOLDER.items():
            if getattr(self, field) not in (None, False, ()):
                text = f"--resume goes on with what {self.resume} says; leave out --{option}"
                raise UserError(text)

    def require_lab(self) -> str:
        """Return the experiment, or raise `UserError` if none is named."""
        if self.lab is None:
            raise UserError("name an experiment, as in `dualml run lab1`, or --resume DIR")
        return self.lab

    @property
    def names_data(self) -> bool:
        """Whether the dataset is named explicitly, so that no other may take its place."""
        return self.data is not None or any(o.startswith("data.name") for o in self.overrides)

    def load_experiment(self, world_size: int | None = None, *, small: bool = False) -> Experiment:
        """Load the experiment as this request changes it, with ``world_size`` ranks.

        Args:
            world_size: of each arm that has several; None for what the experiment's file says.
            small: whether there are few data, see `dualml.experiment.load.load`.

        Raises:
            UserError: it cannot be run like this.
        """
        from dualml.experiment.load import load

        return load(
            self.require_lab(),
            overrides=self.overrides,
            arms=self.arms,
            seeds=self.seeds,
            data=self.data,
            model=self.model,
            quick=self.quick,
            small=small,
            world_size=world_size,
        )
