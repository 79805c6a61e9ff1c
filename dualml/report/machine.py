"""CPU cores that the ranks of a run shared, and the size of the vector that they reduce."""

from __future__ import annotations

from typing import Any

from dualml.common.machine import recorded_cores
from dualml.common.words import Messages
from dualml.experiment.store.run import RunData


def cores(run: RunData, backend: str) -> int | None:
    """Return the number of usable cores, as the backend recorded it; None if it did not."""
    return recorded_cores(run.environment.get(backend) or {})


def oversubscribed_backends(run: RunData) -> list[tuple[str, int, int, int]]:
    """Return the backends whose ranks had to share cores: backend, ranks of the successful trial
    with most threads (of those with several ranks), threads per rank, cores."""
    out = []
    for backend in run.backends:
        have = cores(run, backend)
        recorded = str((run.environment.get(backend) or {}).get("threads", ""))
        usual = int(recorded) if recorded.isdecimal() else have or 0
        several = [t for t in run.trials if t.backend == backend and t.ok and t.world_size > 1]
        used = [(t.world_size * (t.threads or usual), t.world_size) for t in several]
        busiest, ranks = max(used, default=(0, 0))
        if have is not None and busiest > have:
            out.append((backend, ranks, busiest // ranks, have))
    return out


def vector_bytes(run: RunData) -> int | None:
    """Return S, the bytes of the parameters of the experiment's model in float32, not of an arm's
    variant; None for an unknown model."""
    from dualml.algorithms.model.spec import ModelSpec
    from dualml.algorithms.model.zoo import model
    from dualml.common.errors import UserError

    name, data = str(run.experiment.get("model")), run.meta.get("data") or {}
    if run.experiment.get("pretrained"):
        return ModelSpec.restore(dict(run.models[name])).nbytes() if name in run.models else None
    sizes: dict[str, Any] = {key: run.experiment.get(key) for key in ("sizes", "recurrent")}
    if data.get("vocabulary"):  # text data
        sizes |= {"words": data["vocabulary"], "length": data.get("length")}
    if data.get("classes"):
        sizes["classes"] = len(data["classes"])
    try:
        return model(name, **sizes).nbytes()
    except UserError:
        return None


def oversubscription_items(run: RunData, words: Messages) -> list[str]:
    """Return a text for each backend whose ranks had to share cores, with the numbers of ranks,
    threads and cores."""
    return [
        words("page.crowded_item", backend=backend, ranks=n, threads=threads, cores=have)
        for backend, n, threads, have in oversubscribed_backends(run)
    ]
