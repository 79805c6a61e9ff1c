"""The states that ``squeue`` reports, as `dualml jobs` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dualml.runner.jobs import slurm


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("PENDING   0   Resources  \n", ("queued", None, "Resources")),
        ("PENDING   0   None  \n", ("queued", None, None)),
        (
            "PENDING   1   BeginTime \n",
            ("queued", None, "Slurm has put it back, as after the loss of a node: BeginTime"),
        ),
        (
            "PENDING   2   Nodes required for job are DOWN, DRAINED \n",
            (
                "queued",
                None,
                "Slurm has put it back, as after the loss of a node: "
                "Nodes required for job are DOWN, DRAINED",
            ),
        ),
        ("RUNNING   1   None \n", ("running", None, None)),
    ],
)
def test_a_job_that_was_put_back_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: Any
) -> None:
    class Jobs:
        def folder(self, number: int) -> Path:
            return tmp_path

    class FakeJob:
        id, slurm, status, since, stopping, reason = 1, "7", "running", 0.0, False, None

    class FakeProcess:
        code, out, err = 0, line, ""

    monkeypatch.setattr(slurm, "run_slurm", lambda *words, **more: FakeProcess())
    monkeypatch.setattr(slurm.shutil, "which", lambda program: program)
    assert slurm.query_slurm(Jobs(), FakeJob(), FakeJob()) == told  # type: ignore[arg-type]


def test_a_job_inherits_no_options_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job inherits no options from variables, so ``--lang en`` under ``DUALML_LANG=zh`` stays
    English."""
    monkeypatch.setenv("DUALML_LANG", "zh")
    monkeypatch.setattr(slurm, "require_program", lambda program: None)
    monkeypatch.setattr(slurm, "run_bounded", lambda words, limit, environ: environ)
    environ: Any = slurm.run_slurm("sbatch", environ={"X": "1"})
    assert "DUALML_LANG" not in environ
    assert (environ["X"], "PATH" in environ) == ("1", True)
