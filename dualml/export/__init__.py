"""Results where people look: each target is a file of this room that registers itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError
from dualml.export.base import TARGETS, Job

__all__ = ["Exported", "export"]


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        where: the folder, or the address of a store elsewhere.
        files: of the folder, in order.
        trials: how many were written.
        unreadable: a line for each file of the run that is damaged; it was left out.
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
) -> Exported:
    """Write the records of run folders as another tool reads them.

    Args:
        folders: several are taken together if they were made from one plan.
        to: csv, parquet, tensorboard, mlflow, wandb or trace.
        out: a folder that is absent or empty; ``export/TARGET`` in the first run folder when
            omitted, which is replaced.
        lang: of the texts, ``en`` or ``zh``.
        online: let wandb talk to its service.
        force: also where a plan was changed after it was made.

    Raises:
        UserError: no run folder, an unknown target, a library that is missing, an ``out`` that is
            not empty, or nothing there that the target takes.
    """
    from dualml.store.load import load
    from dualml.words import Words

    target = TARGETS.find(to)
    if online and to != "wandb":
        raise UserError(f"--online is for --to wandb; --to {to} asks no service: leave it out")
    run = load([Path(folder) for folder in folders], force=force)
    job = Job(run, to, Words(lang), out, online)
    where = target(job)
    place = Path(where)
    files = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
    return Exported(to, where, files, len(job.trials), run.unreadable)
