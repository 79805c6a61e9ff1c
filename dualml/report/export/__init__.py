"""Export results to other tools: each target is a file of this package that registers itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError
from dualml.report.export.base import TARGETS, ExportJob

__all__ = ["ExportResult", "export"]


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        where: the folder, or the address of a store elsewhere.
        files: names of the files in the folder, sorted.
        trials: number of exported trials.
        unreadable: a line for each damaged file of the run, which was left out.
    """

    target: str
    where: str
    files: Sequence[str]
    trials: int
    unreadable: Sequence[str]


def export(
    folders: Sequence[Path],
    to: str,
    out: Path | None = None,
    *,
    lang: str = "en",
    online: bool = False,
    force: bool = False,
) -> ExportResult:
    """Write the records of run folders in the format of another tool.

    Args:
        folders: run folders; several are taken together if they were made from one plan.
        to: csv, parquet, tensorboard, mlflow, wandb or trace.
        out: a folder that is absent or empty; when omitted ``export/TARGET`` in the first run
            folder, which is replaced.
        lang: language of the texts, ``en`` or ``zh``.
        online: let wandb contact its service.
        force: accept plans that were changed after they were made.

    Raises:
        UserError: no run folder, a changed plan without ``force``, an unknown target, ``online``
            for another target than wandb, a missing library, an ``out`` that is not empty, or no
            records that the target exports.
    """
    from dualml.common.words import Messages
    from dualml.experiment.store.load import load

    target = TARGETS.find(to)
    if online and to != "wandb":
        raise UserError(f"--online is for --to wandb; --to {to} asks no service: leave it out")
    run = load([Path(folder) for folder in folders], force=force)
    job = ExportJob(run, to, Messages(lang), out, online)
    where = target(job)
    place = Path(where)
    files = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
    return ExportResult(to, where, files, len(job.trials), run.unreadable)
