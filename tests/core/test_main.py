"""The exit code of the command, for each kind of interruption."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: A program that receives the signal while an imported module creates a dataclass.
INTERRUPTED = """
import sys, types, typer
from dualml.interface import cli
from dualml.interface.cli import help

app = typer.Typer()

@app.command()
def interrupted():
    exec("raise KeyboardInterrupt")

sys.modules["dualml.interface.cli.app"] = module = types.ModuleType("dualml.interface.cli.app")
module.app = app
help.localise = lambda command, language: None
cli.main()
"""


def test_an_interrupt_inside_of_executed_text_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """The exit code is 130, where `python -m` would end by SIGINT (-2)."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=tmp_path,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130, done.stderr
