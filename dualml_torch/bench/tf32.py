"""TF32 as a planted difference: products with 10 bits of mantissa, which a verdict must detect.

``python -m dualml_torch.bench.tf32 DEVICE SIZE`` prints the errors of one matrix product and one
convolution under this process's environment variables, which libraries read when they are loaded.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

from dualml.backend import backends
from dualml.common.errors import TrialError
from dualml.common.machine import python_argv, run_bounded
from dualml.interface.bench.lab import REFERENCE, arms_for, compare_trials, run_lab
from dualml.interface.bench.section import AddRow, BenchJob
from dualml_torch.common.environment import resolve_device

#: Whether TF32 is on → environment variables: NVIDIA's for its libraries, and torch's own.
VARIABLES = {
    False: {"NVIDIA_TF32_OVERRIDE": "0", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0"},
    True: {"NVIDIA_TF32_OVERRIDE": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
}
#: TF32 has 13 bits less than float32: an error larger by this factor cannot be float32's.
TF32_ERROR_RATIO = 30.0
PROBE_S = 60.0


def section(job: BenchJob, add: AddRow) -> None:
    """Call ``add`` with three rows for every arm: TF32 off compared with the reference, TF32 on
    compared with the reference, as `dualml run` judges them, and TF32 on compared with off within
    the float32 envelope."""
    probed = {on: probe_errors(job, on) for on in VARIABLES}
    there = probed[True]["product"] > TF32_ERROR_RATIO * probed[False]["product"]
    referee, off = run_lab(job, REFERENCE, "cpu"), run_lab(job, job.backend, job.device)
    on = run_lab(job, job.backend, job.device, "lab-tf32", VARIABLES[True])
    for arm in arms_for(job):
        envelope = off.trajectory(arm).envelope
        plain = [envelope] if envelope else None
        add_row(add, compare_trials(off, referee, arm), there, tf32=False, arm=arm, **probed[False])
        add_row(add, compare_trials(on, referee, arm), there, tf32=True, arm=arm, **probed[True])
        add_row(add, compare_trials(on, off, arm, plain), there, tf32=True, arm=arm)


def add_row(add: AddRow, cells: dict[str, Any], there: bool, *, tf32: bool, **more: Any) -> None:
    """Call ``add`` with a row of a comparison's ``cells``; ``noticed`` says whether the verdict is
    right: different if and only if ``tf32`` was asked for and was really on (``there``)."""
    noticed = (cells["verdict"] == "different") == (tf32 and there)
    if tf32 and not there:
        cells = {**cells, "reason": {"key": "no_tf32"}}
    against = "referee" if "product" in more else "off"
    shown = {key: cells[key] for key in ("verdict", "envelopes", "reason") if key in cells}
    add(tf32=tf32, against=against, noticed=noticed, ok=noticed, **shown, **more)


def probe_errors(job: BenchJob, on: bool) -> dict[str, float]:
    """Measure the relative errors of one product and one convolution with TF32 on or off, in a
    process of their own; return them by these names.

    Raises:
        TrialError: the process failed.
    """
    size = "64" if job.quick else "1024"
    command = python_argv("-m", __spec__.name, job.device, size)
    environ = backends()[job.backend].environ(job.threads)
    ended = run_bounded(command, PROBE_S, {**os.environ, **environ, **VARIABLES[on]})
    if ended.code != 0:
        lines = ended.err.strip().splitlines() or [f"exit code {ended.code}"]
        raise TrialError(f"the products could not be tried: {lines[-1]}")
    measured: dict[str, float] = json.loads(ended.out)
    return measured


def relative_errors(device: torch.device, size: int) -> dict[str, float]:
    """Return ‖single − double‖ / ‖double‖ of a matrix product and of a convolution by name: float32
    on ``device`` compared with float64 on the CPU, with the same rounded operands."""
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=draw, dtype=torch.float64) for _ in range(2))
    x = torch.randn(32, 16, 32, 32, generator=draw, dtype=torch.float64)
    w = torch.randn(32, 16, 5, 5, generator=draw, dtype=torch.float64)
    operations = {"product": (torch.matmul, a, b), "convolution": (torch.conv2d, x, w)}
    by_name = {}
    for name, (f, *given) in operations.items():
        # Round the operands to float32 first: only the error of the operation counts.
        single = [t.float().to(device) for t in given]
        exact = f(*(t.cpu().double() for t in single))
        by_name[name] = float((f(*single).cpu().double() - exact).norm() / exact.norm())
    return by_name


if __name__ == "__main__":
    print(json.dumps(relative_errors(resolve_device(sys.argv[1]), int(sys.argv[2]))))
