"""Dynamic loss scaling with typical mistakes as options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.mistakes import compute_mistaken

#: Mistake → test for the overflow that it still detects; the right rule detects infinity and NaN.
DETECTED_OVERFLOW: Mapping[str, Any] = {
    "overflow_unseen": np.zeros_like,
    "minus_unseen": lambda g: np.isnan(g) | (g == np.inf),
    "nan_unseen": np.isinf,
    "infinity_unseen": np.isnan,
}


def has_overflow(gradients: Sequence[Any], f: Flags) -> bool:
    """Return whether a gradient is infinite or NaN, as the typical mistakes named in ``f`` see
    it."""
    looked = gradients[:1] if "first_gradient_alone" in f else gradients
    bad = next(
        (test for flag, test in DETECTED_OVERFLOW.items() if flag in f), lambda g: ~np.isfinite(g)
    )
    return any(bool(np.any(bad(g))) for g in looked)


def scaled_training(
    options: Mapping[str, Any],
    arrays: Arrays,
    flags: Flags = RIGHT,
    number: type[np.floating[Any]] = np.float64,
) -> dict[str, Any]:
    """Compute ``3/a``, weight a after step 3, ``3/scale``, the scale after it, and ``3/done``, 0 if
    its gradients overflow and else 1, for all steps; and ``loss``, the scaled loss."""
    h = options["hyper"]
    scale, good, lr = float(h["scale"]), 0, number(options["lr"])
    names = [key[2:] for key in arrays if key.startswith("p/")]
    now = {n: arrays[f"p/{n}"].astype(number) for n in names}
    loss = float(arrays["loss"])
    out: dict[str, Any] = {
        "loss": np.asarray(loss / scale if "loss_divided" in flags else loss * scale)
    }
    growth = 1.0 if "never_grows" in flags else h["growth"]
    backoff = 1.0 if "never_falls" in flags else h["backoff"]
    if "factors_swapped" in flags:
        growth, backoff = backoff, growth
    for step in range(1, options["steps"] + 1):
        gradients = [arrays[f"g/{step}/{n}"] for n in names]
        over = has_overflow(gradients, flags)
        with np.errstate(all="ignore"):
            for n, g in zip(names, gradients, strict=True):
                until = "updated_until" not in flags or not np.all(np.isfinite(g))
                if over and "updated_anyway" not in flags and until:
                    break
                now[n] = now[n] - lr * unscale(g, scale, number, flags)
        good = 0 if over and "count_kept" not in flags else good + (not over)
        if over:
            scale *= backoff
        elif good == h["interval"] or ("grows_always" in flags):
            scale *= growth
            good = good if "count_not_begun_anew" in flags else 0
        elif "count_not_begun_anew" in flags and good > h["interval"]:
            scale *= growth
        out |= {f"{step}/{n}": now[n] for n in names}
        out |= {f"{step}/scale": np.asarray(scale), f"{step}/done": np.asarray(float(not over))}
    return out


def unscale(g: Any, scale: float, number: Any, f: Flags) -> Any:
    """Return the float16 gradient ``g`` divided by ``scale``, in the dtype ``number``, as the
    typical mistakes named in ``f`` change it."""
    mistaken = {
        "not_unscaled": lambda: g.astype(number),
        "unscaled_in_half": lambda: (
            (g.astype(np.float32) / np.float32(scale)).astype(np.float16).astype(number)
        ),
        "multiplied_again": lambda: g.astype(number) * number(scale),
    }
    return compute_mistaken(f, mistaken, lambda: g.astype(number) / number(scale))
