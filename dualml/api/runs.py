"""A finished run: its trials, verdicts, tables and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from inspect import Signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dualml.api.plot import Plot
from dualml.api.tools import needed
from dualml.errors import UserError, nearest
from dualml.store import load as stored
from dualml.store import table
from dualml.store.records import Curve
from dualml.store.run import Comparison, Trial
from dualml.store.run import Run as StoredRun

if TYPE_CHECKING:
    from pandas import DataFrame

TABLES: dict[str, Callable[[StoredRun], table.Table]] = {
    "records": table.records,
    "trials": table.trials,
    "verdicts": table.verdicts,
}


class Run(StoredRun):
    """A run folder, or several of one plan together: what `load` and `run` return.

    Attributes:
        folders: where it lies.
        trials: one for each arm, backend and seed, with its curves and results.
        arms: arm → its settings, as the experiment has them.
        backends, seeds: those of the trials.
        environment: backend → versions, device and threads.
        changed: why a plan is not the one that was frozen, where one is not.
        unreadable: one line for each file that is there and cannot be read.

    Example:
        >>> done = dualml.load("runs/lab1-20260101-120000")
        >>> done.verdict
        'equal'
        >>> done.trial("adam", "torch", 0).test_accuracy
        0.9722
    """

    #: Of nothing that users give: `load` and `run` make it.
    __signature__ = Signature()

    @property
    def verdict(self) -> str | None:
        """The worst of `verdicts`; None where nothing was compared."""
        return table.worst(each.verdict for each in self.verdicts)

    @property
    def verdicts(self) -> tuple[Comparison, ...]:
        """Every comparison that came to a verdict, of two backends, and on one backend of several
        ranks or a method with the arm that they must equal."""
        return tuple(table.compared(self))

    def trial(
        self, arm: str | None = None, backend: str | None = None, seed: int | None = None
    ) -> Trial:
        """The one trial that this is said of; what all trials share may be left out.

        Args:
            arm: its name in the experiment.
            backend: as in `backends`.
            seed: as in `seeds`.

        Raises:
            UserError: none, or several.
        """
        asked = {"arm": arm, "backend": backend, "seed": seed}
        asked = {name: value for name, value in asked.items() if value is not None}
        of = self.trials
        for name, value in asked.items():
            there = {str(getattr(trial, name)) for trial in of}
            of = tuple(trial for trial in of if getattr(trial, name) == value)
            if not of:
                raise UserError(f"no trial of {name} {value!r}{nearest(str(value), there)}")
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
        """A metric of one trial, as rank 0 recorded it: float64 arrays ``step``, ``value``,
        ``epochs`` and ``seconds`` of shape (records,), NaN where nothing was recorded.

        Args:
            metric: as in the column ``metric`` of `frame`.
            arm, backend, seed: which trial, see `trial`.

        Raises:
            UserError: no such trial, several, or a metric that it has not.
        """
        curves = self.trial(arm, backend, seed).curves
        if metric not in curves:
            raise UserError(f"the trial has no curve {metric!r}{nearest(metric, curves)}")
        return curves[metric]

    def frame(self, of: Literal["records", "trials", "verdicts"] = "records") -> DataFrame:
        """A table of pandas.

        Args:
            of: ``records`` (a row for each recorded number), ``trials`` (one for each trial, with
                its results) or ``verdicts`` (one for each comparison); the columns and their units
                are those of `dualml.store.table`.

        Raises:
            UserError: another table, a damaged file of records, or pandas is not installed.
        """
        if of not in TABLES:
            raise UserError(f"unknown table {of!r}{nearest(of, TABLES)}")
        return needed("pandas").DataFrame(TABLES[of](self))

    @cached_property
    def plot(self) -> Plot:
        """Curves with Matplotlib, as ``run.plot.loss()``, ``run.plot("test_loss", arm="adam")``."""
        return Plot(self)

    def report(self, out: str | PathLike[str] | None = None, lang: str = "en") -> Path:
        """Write the report again: ``report.html``, ``report.md`` and figures.

        Args:
            out: the folder; that of the (first) run when omitted.
            lang: ``en`` or ``zh``.

        Returns:
            The HTML page.

        Raises:
            UserError: another language.
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
        from dualml.api.notebook import html

        return str(html(self))


def load(*folders: str | PathLike[str], force: bool = False) -> Run:
    """Read a run folder, or several that were made from one plan.

    Args:
        folders: what ``dualml run`` or `run` wrote.
        force: also where a plan was changed; `Run.changed` then says what.

    Raises:
        UserError: no run folder, one of a newer version, a damaged ``run.json``, or plans that
            differ. Of other files that cannot be read `Run.unreadable` tells.
    """
    read = stored.load([Path(folder) for folder in folders], force=force)
    return Run(**{field.name: getattr(read, field.name) for field in fields(read)})
