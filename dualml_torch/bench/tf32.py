"""TF32 as a planted difference: products of 10 bits of mantissa, which a verdict must notice.

``python -m dualml_torch.bench.tf32 DEVICE SIZE`` prints the errors of one matrix product and one
convolution under the variables of this process, which libraries read when they are loaded.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

from dualml.backend import backends
from dualml.bench.lab import REFEREE, arms_of, judge, run_lab
from dualml.bench.section import Add, Job
from dualml.errors import TrialError
from dualml.machine import bounded, python
from dualml_torch.environment import resolve_device

#: Whether TF32 is on → variables: NVIDIA's for its libraries, torch's for what it asks of them.
VARIABLES = {
    False: {"NVIDIA_TF32_OVERRIDE": "0", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0"},
    True: {"NVIDIA_TF32_OVERRIDE": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
}
#: Minimum ratio of the errors with and without TF32, which has 13 bits less than float32, that
#: proves its use.
FAR = 30.0
PROBE_S = 60.0


def section(job: Job, add: Add) -> None:
    """For every arm: off against the referee and on against the referee, as `dualml run` judges
    them; and on against off, with the envelope that float32 has."""
    probed = {on: probe(job, on) for on in VARIABLES}
    there = probed[True]["product"] > FAR * probed[False]["product"]
    referee, off = run_lab(job, REFEREE, "cpu"), run_lab(job, job.backend, job.device)
    on = run_lab(job, job.backend, job.device, "lab-tf32", VARIABLES[True])
    for arm in arms_of(job):
        envelope = off.of(arm).envelope
        plain = [envelope] if envelope else None
        row(add, judge(off, referee, arm), there, tf32=False, arm=arm, **probed[False])
        row(add, judge(on, referee, arm), there, tf32=True, arm=arm, **probed[True])
        row(add, judge(on, off, arm, plain), there, tf32=True, arm=arm)


def row(add: Add, cells: dict[str, Any], there: bool, *, tf32: bool, **more: Any) -> None:
    """``noticed``: whether the verdict tells what was planted, or that nothing was."""
    noticed = (cells["verdict"] == "different") == (tf32 and there)
    if tf32 and not there:
        cells = {**cells, "reason": {"key": "no_tf32"}}
    against = "referee" if "product" in more else "off"
    shown = {key: cells[key] for key in ("verdict", "envelopes", "reason") if key in cells}
    add(tf32=tf32, against=against, noticed=noticed, ok=noticed, **shown, **more)


def probe(job: Job, on: bool) -> dict[str, float]:
    """Relative errors of one product and one convolution with TF32 on or off.

    Raises:
        TrialError: the process ended badly.
    """
    size = "64" if job.quick else "1024"
    command = python("-m", __spec__.name, job.device, size)
    environ = backends()[job.backend].environ(job.threads)
    ended = bounded(command, PROBE_S, {**os.environ, **environ, **VARIABLES[on]})
    if ended.code != 0:
        lines = ended.err.strip().splitlines() or [f"exit code {ended.code}"]
        raise TrialError(f"the products could not be tried: {lines[-1]}")
    measured: dict[str, float] = json.loads(ended.out)
    return measured


def errors(device: torch.device, size: int) -> dict[str, float]:
    """‖single − double‖ / ‖double‖ of a matrix product and of a convolution."""
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=draw, dtype=torch.float64) for _ in range(2))
    x = torch.randn(32, 16, 32, 32, generator=draw, dtype=torch.float64)
    w = torch.randn(32, 16, 5, 5, generator=draw, dtype=torch.float64)
    operations = {"product": (torch.matmul, a, b), "convolution": (torch.conv2d, x, w)}
    by_name = {}
    for name, (f, *given) in operations.items():
        # Of the numbers as float32 has them: only what is computed with them counts.
        single = [t.float().to(device) for t in given]
        exact = f(*(t.cpu().double() for t in single))
        by_name[name] = float((f(*single).cpu().double() - exact).norm() / exact.norm())
    return by_name


if __name__ == "__main__":
    print(json.dumps(errors(resolve_device(sys.argv[1]), int(sys.argv[2]))))
