"""Peak device memory of a training."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import torch

from dualml.interface.bench.section import AddRow, BenchJob
from dualml.interface.bench.work import error_reason
from dualml_torch.bench.plain_loop import MODELS, Loop, PlainLoop, TrialLoop, make_work
from dualml_torch.common.environment import resolve_device


def section(job: BenchJob, add: AddRow) -> None:
    """Call ``add`` with a row for each model and loop: the peak MiB allocated and reserved in two
    rounds, without what was there before, or the reason of a failure; on a CPU with one row that
    says that nothing is counted."""
    torch.set_num_threads(job.threads)
    device = resolve_device(job.device)
    if device.type != "cuda":
        add(reason={"key": "no_counter"})
        return
    for model in MODELS:
        own = make_work(job, model)
        variants: dict[str, Callable[[], Loop]] = {"ours": partial(TrialLoop, own)}
        variants |= {how: partial(PlainLoop, own, how) for how in ("loop", "fused", "graph")}
        variants["bfloat16"] = partial(PlainLoop, own, "fused", torch.bfloat16)
        for name, make in variants.items():
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            held = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
            try:
                loop = make()
                loop.run_round()
                loop.run_round()
            except Exception as error:
                add(model=model, variant=name, reason=error_reason(error))
                continue
            add(
                model=model,
                variant=name,
                allocated=(torch.cuda.max_memory_allocated(device) - held[0]) / 2**20,
                reserved=(torch.cuda.max_memory_reserved(device) - held[1]) / 2**20,
            )
            del loop
