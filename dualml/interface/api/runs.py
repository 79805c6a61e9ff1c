"""Read a finished run: its trials, verdicts, tables and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from inspect import Signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dualml.common.errors import UserError, did_you_mean
from dualml.experiment.store import load as stored
from dualml.experiment.store import table
from dualml.experiment.store.records import Curve
from dualml.experiment.store.run import RunData as StoredRun
from dualml.experiment.store.run import Trial, TrialComparison
from dualml.experiment.verdict import worst_verdict
from dualml.interface.api.plot import Plot
from dualml.interface.api.tools import import_optional

if TYPE_CHECKING:
    from pandas import DataFrame

TABLES: dict[str, Callable[[StoredRun], table.Table]] = {
    "records": table.records,
    "trials": table.trials,
    "verdicts": table.verdicts,
}


class Run(StoredRun):
    """A run folder, or several of one plan together, as returned by `load` and `run`.

    Attributes:
        folders: the run folders.
        trials: one trial per arm, backend and seed, with its curves and results.
        arms: arm → its settings in the experiment.
        backends, seeds: the backends and seeds of the trials.
        environment: backend → versions, device and threads.
        changed: why a plan differs from the frozen one; empty if none does.
        unreadable: one line per file that exists but cannot be read.

    Example:
        >>> done = dualml.load("runs/lab1-20260101-120000")
        >>> done.verdict
        'equal'
        >>> done.trial("adam", "torch", 0).test_accuracy
        0.9722
    """

    #: Users never construct a run: `load` and `run` do.
    __signature__ = Signature()

    @property
    def verdict(self) -> str | None:
        """The worst verdict of `verdicts`, or None if nothing was compared."""
        return worst_verdict(each.verdict for each in self.verdicts) or None

    @property
    def verdicts(self) -> tuple[TrialComparison, ...]:
        """Every comparison with a verdict, except those of low-precision methods with dualml's own
        training in that precision.

        These compare two backends, or, on one backend, an arm with several ranks or a training
        method with the arm that it must equal.
        """
        return tuple(table.decided_comparisons(self))

    def trial(
        self, arm: str | None = None, backend: str | None = None, seed: int | None = None
    ) -> Trial:
        """Return the one trial that matches; arguments that all trials share may be omitted.

        Args:
            arm: name of the arm in the experiment.
            backend: one of `backends`.
            seed: one of `seeds`.

        Raises:
            UserError: no trial matches, or several do.
        """
        asked = {"arm": arm, "backend": backend, "seed": seed}
        asked = {name: value for name, value in asked.items() if value is not None}
        of = self.trials
        for name, value in asked.items():
            there = {str(getattr(trial, name)) for trial in of}
            of = tuple(trial for trial in of if getattr(trial, name) == value)
            if not of:
                raise UserError(f"no trial of {name} {value!r}{did_you_mean(str(value), there)}")
        if len(of) != 1:
            varies = [n for n in ("arm", "backend", "seed") if len({getattr(t, n) for t in of}) > 1]
            raise UserError(f"there are {len(of)} such trials; say {' and '.join(varies)}, too")
        return of[0]

    def curve(
        self,
        metric: str = "loss",
        *,
        arm: str | None = None,
        backend: str | None = None,
        seed: int | None = None,
    ) -> Curve:
        """Return one metric of one trial, as rank 0 recorded it.

        The curve has float64 arrays ``step``, ``value``, ``epochs`` and ``seconds`` of shape
        (records,), with NaN where nothing was recorded.

        Args:
            metric: a value of the column ``metric`` of `frame`.
            arm, backend, seed: select the trial, see `trial`.

        Raises:
            UserError: not exactly one trial matches, or it has no such metric.
        """
        curves = self.trial(arm, backend, seed).curves
        if metric not in curves:
            raise UserError(f"the trial has no curve {metric!r}{did_you_mean(metric, curves)}")
        return curves[metric]

    def frame(self, of: Literal["records", "trials", "verdicts"] = "records") -> DataFrame:
        """Return a table of the run as a pandas DataFrame.

        Args:
            of: ``records`` (one row per recorded number), ``trials`` (one per trial, with
                its results) or ``verdicts`` (one per comparison); the columns and their units
                are those of `dualml.experiment.store.table`.

        Raises:
            UserError: an unknown table, a damaged file of records, or pandas is missing.
        """
        if of not in TABLES:
            raise UserError(f"unknown table {of!r}{did_you_mean(of, TABLES)}")
        return import_optional("pandas").DataFrame(TABLES[of](self))

    @cached_property
    def plot(self) -> Plot:
        """The Matplotlib plots: ``run.plot.loss()``, ``run.plot("test_loss", arm="adam")``."""
        return Plot(self)

    def report(self, out: str | PathLike[str] | None = None, lang: str = "en") -> Path:
        """Write the report again: ``report.html``, ``report.md`` and figures.

        Args:
            out: the output folder; the folder of the (first) run when omitted.
            lang: language of the report, ``en`` or ``zh``.

        Returns:
            The path of the HTML page.

        Raises:
            UserError: the language is unknown, or the run folders cannot be read any more.
        """
        from dualml.report import render

        place = None if out is None else Path(out)
        return render(self.folders, place, lang, force=bool(self.changed))[0]

    def __repr__(self) -> str:
        folders = ", ".join(map(str, self.folders))
        return (
            f"<Run {self.meta.get('name')}: {len(self.trials)} trials, {self.verdict}, {folders}>"
        )

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show for a run."""
        from dualml.interface.api.notebook import html

        return str(html(self))


def load(*folders: str | PathLike[str], force: bool = False) -> Run:
    """Read a run folder, or several that were made from one plan.

    Args:
        folders: run folders that ``dualml run`` or `run` wrote.
        force: accept a plan that was changed; `Run.changed` then says how.

    Raises:
        UserError: not a run folder, a newer format, a damaged ``run.json``, or plans that
            differ. `Run.unreadable` lists other files that cannot be read.
    """
    read = stored.load([Path(folder) for folder in folders], force=force)
    return Run(**{field.name: getattr(read, field.name) for field in fields(read)})
