"""A loss guard: does a change still train the same?

One experiment is run before a change and after it, and the two runs are compared by what rounding
does to this very training, measured. Cutting batches into pieces moves the last digits and passes;
Adam with its epsilon in another place ends with as good a loss and does not. Here the changes are
settings and the backend is dualml's NumPy reference, so that no framework is needed; in a
repository they are commits, and `docs/loss-guard.md` has the GitHub action.

    python examples/loss_guard_numpy.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import dualml

BASE = {"arms.adam.epochs": 1, "arms.adam.optimizer.eps": 1e-7}
CHANGES = {
    "gradients in pieces of 16": {"arms.adam.chunk": 16},
    "epsilon hat": {"arms.adam.optimizer.eps_form": "hat"},
}


def train(folder: Path, change: dict[str, object]) -> dualml.Run:
    """Train the experiment with changed settings and return the run."""
    return dualml.run(
        "lab1",
        backend="numpy",
        arms="adam",
        quick=True,
        settings={**BASE, **change},
        out=folder,
        report=False,
        progress=False,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        before = train(Path(folder, "before"), {})
        print(f"{'change':28}{'final loss':>12}  verdict")
        print(f"{'none':28}{before.trial().final_loss:12.6f}")
        for number, (name, change) in enumerate(CHANGES.items()):
            after = train(Path(folder, f"after{number}"), change)
            found = dualml.compare(before, after)
            print(f"{name:28}{after.trial().final_loss:12.6f}  {found.verdict}")
        print(found.paragraph())
