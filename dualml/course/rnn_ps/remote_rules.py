"""Training of a language model whose tables live on a server, with typical mistakes as options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.language_model import WEIGHTS, language_model
from dualml.course.places import flags_at

#: Momentum of the optimizer that the student is given.
MOMENTUM = 0.5
RNN, DECODER = ("input", "hidden", "bias"), ("decoder", "decoder_bias")
#: Mistake → parameters that never move.
FROZEN: Mapping[str, tuple[str, ...]] = {
    "embedding_frozen": ("table",),
    "decoder_frozen": DECODER,
    "recurrent_frozen": RNN,
    "tables_frozen": ("table", *DECODER),
    "all_frozen": ("table", *RNN, *DECODER),
}
#: Mistake → parameters of the server that do not move because a copy of them is trained.
COPIED: Mapping[str, tuple[str, ...]] = {
    "table_copied": ("table",),
    "tables_copied": ("table", *DECODER),
}


def train_remote(
    options: Mapping[str, Any],
    arrays: Arrays,
    flags: Flags = RIGHT,
    number: type[np.floating[Any]] = np.float64,
) -> dict[str, Any]:
    """Compute ``3/loss``, ``3/state`` and ``3/NAME`` of the parameters after update 3, as
    ``3/table``, and ``g/3/NAME`` and ``v/3/NAME``, the gradients of this update and the momentum
    before it."""
    now = {name: arrays[name].astype(number) for name in ("table", *WEIGHTS)}
    begin, moments = dict(now), {name: np.zeros_like(a) for name, a in now.items()}
    state = arrays["state"].astype(number)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        here = flags_at(flags, step=(step - 1, options["steps"]))
        window = arrays[f"words/{step}"], arrays[f"y/{step}"]
        before = np.zeros_like(state) if "state_zeroed" in here else state
        loss, gradients, after = differentiate(now, *window, before, here)
        frozen = {name for flag, names in FROZEN.items() if flag in here for name in names}
        if "first_update_unseen" in here and step == 1:
            frozen |= {"table"}
        for name, g in gradients.items():
            out |= {f"g/{step}/{name}": g, f"v/{step}/{name}": moments[name]}
            if name in frozen:
                continue
            for _ in range(2 if "stepped_twice" in here else 1):
                v = number(0 if "momentum_forgotten" in here else MOMENTUM) * moments[name] + g
                moments[name] = v
                now[name] = now[name] - number(options["lr"]) * v
        if "loss_after_update" in here:
            loss = differentiate(now, *window, before, here)[0]
        state = state if "state_not_returned" in here else after
        copied = {name for flag, names in COPIED.items() if flag in flags for name in names}
        shown = {name: begin[name] if name in copied else a for name, a in now.items()}
        out |= {f"{step}/loss": np.asarray(loss), f"{step}/state": state}
        out |= {f"{step}/{name}": a for name, a in shown.items()}
    return out


def differentiate(
    now: Mapping[str, Any], words: Any, y: Any, state: Any, flags: Flags
) -> tuple[Any, dict[str, Any], Any]:
    """Compute the loss of a window (batch, time), the gradients of all parameters, and the state
    after it, with the typical mistakes named in ``flags``."""
    targets = y if flags & {"time_batch_swapped", "targets_swapped"} else y.T
    words = words if "time_batch_swapped" in flags else words.T
    weights = {name: now[name] for name in WEIGHTS}
    loss, rows, gradients, after = language_model(
        now["table"][words], weights, targets, state, "last_word_alone" in flags
    )
    table = np.zeros_like(now["table"])
    np.add.at(table, words, rows)
    return loss, {"table": table, **gradients}, after
