"""Training with a parameter server and several trainers, with typical mistakes as options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.language_model import WEIGHTS, join_weights, language_model
from dualml.course.mistakes import compute_mistaken
from dualml.course.places import flags_at


def train_with_server(
    options: Mapping[str, Any],
    arrays: Sequence[Arrays],
    flags: Flags = RIGHT,
    number: type[np.floating[Any]] = np.float64,
) -> list[Arrays]:
    """Compute ``3/table`` and ``3/weights`` after update 3 on rank 0, and on every trainer
    ``3/loss`` of the update, and its gradients ``3/gradient`` for the table and
    ``3/weight_gradient``."""
    now = {name: arrays[0][name].astype(number) for name in ("table", *WEIGHTS)}
    begin, trainers = dict(now), range(1, len(arrays))
    out: list[dict[str, Any]] = [{} for _ in arrays]
    for step in range(1, options["steps"] + 1):
        here = flags_at(flags, step=(step - 1, options["steps"]))
        words = {r: arrays[r][f"words/{step}"] for r in trainers}
        asked = dict.fromkeys(words, words[trainers[-1]]) if "words_of_last" in here else words
        gradients: dict[int, Any] = {}
        for r in trainers:
            seen = now
            if "table_fetched_once" in here:
                seen = {**seen, "table": begin["table"]}
            if "weights_fetched_once" in here:
                seen = {**begin, "table": seen["table"]}
            loss, gradients[r] = differentiate(seen, asked[r], arrays[r][f"y/{step}"], options)
            out[r][f"{step}/loss"] = np.asarray(loss)
            out[r] |= {
                f"{step}/gradient": add_rows(now["table"], asked, {r: gradients[r]}, RIGHT),
                f"{step}/weight_gradient": join_weights(gradients[r]),
            }
            if "updated_between" in here:
                update_parameters(
                    now, {r: asked[r]}, {r: gradients[r]}, options, len(trainers), here, number
                )
        if "updated_between" not in here:
            used = dict.fromkeys(words, words[trainers[-1]]) if "words_of_last#2" in here else asked
            update_parameters(now, used, gradients, options, len(trainers), here, number)
        out[0] |= {f"{step}/table": now["table"], f"{step}/weights": join_weights(now)}
    return list(out)


def differentiate(
    seen: Mapping[str, Any], words: Any, targets: Any, options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Compute a trainer's loss and its gradients: ``table``, those of the rows (n, D) of its words,
    and those of the weights by name.

    Args:
        seen: parameters by name as the trainer has received them.
        words: numbers of the n words of the window.
        targets: numbers of the next words, (time, batch).
        options: ``width`` D and ``hidden``.
    """
    rows = seen["table"][words].reshape(*targets.shape, options["width"])
    weights = {name: seen[name] for name in WEIGHTS}
    state = np.zeros((targets.shape[1], options["hidden"]), rows.dtype)
    loss, of_rows, of_weights, _ = language_model(rows, weights, targets, state)
    return loss, {"table": of_rows.reshape(-1, options["width"]), **of_weights}


def update_parameters(
    now: dict[str, Any],
    words: Mapping[int, Any],
    gradients: Mapping[int, Any],
    options: Mapping[str, Any],
    trainers: int,
    flags: Flags,
    number: Any,
) -> None:
    """Change the parameters ``now``, in place, by the gradients of some trainers, with the typical
    mistakes named in ``flags``, whose axis ``tensor`` has 0 for the table and 1 for the weights.

    Args:
        words: rank of a trainer → its words.
        gradients: rank of a trainer → its gradients by name.
        options: ``lr``.
        trainers: number of all trainers.
        number: dtype of the computation.
    """
    if "gradients_of_last" in flags:
        gradients = dict.fromkeys(gradients, gradients[max(gradients)])
    for i, part in enumerate(("table", "weights")):
        own = flags_at(flags, tensor=(i, 2))
        if own & {"server_frozen", f"server_{part}_frozen"}:
            continue
        chosen = choose_trainers(gradients, own)
        factor = update_factor(options, trainers, part, own)
        if part == "table":
            g = add_rows(now["table"], words, chosen, own)
            now["table"] = now["table"] - number(factor) * g
        else:
            for name in WEIGHTS:
                g = np.sum([of[name] for of in chosen.values()], axis=0)
                now[name] = now[name] - number(factor) * g


def choose_trainers(gradients: Mapping[int, Any], flags: Flags) -> Mapping[int, Any]:
    """Return the trainers whose gradients count, all of them unless a mistake leaves some out."""
    if "first_trainer_alone" in flags:
        return {r: g for r, g in gradients.items() if r == 1}
    if "last_trainer_alone" in flags:
        return {max(gradients): gradients[max(gradients)]}
    return gradients


def update_factor(options: Mapping[str, Any], trainers: int, part: str, flags: Flags) -> float:
    """Return the factor of the sum of gradients in the update of a part, ``table`` or ``weights``:
    the learning rate divided by ``trainers``, unless a mistake changes it."""
    rate = 1.0 if "server_rate_missing" in flags else float(options["lr"])
    summed = {"server_summed", "rows_summed" if part == "table" else "weights_summed"}
    most = compute_mistaken(
        flags,
        {
            **dict.fromkeys(summed, lambda: 1),
            "server_divided_twice": lambda: trainers**2,
            "divided_by_ranks": lambda: trainers + 1,
        },
        lambda: trainers,
    )
    return (-rate if "server_uphill" in flags else rate) / float(most)


def add_rows(
    table: Any, words: Mapping[int, Any], gradients: Mapping[int, Any], flags: Flags
) -> Any:
    """Return the gradient of the table: the sum over trainers and positions of the rows', with the
    typical mistakes named in ``flags``."""
    total = np.zeros_like(table)
    for r in gradients:
        own, rows = words[r], gradients[r]["table"]
        at = np.arange(len(own)) if "rows_by_position" in flags else own
        mine = np.zeros_like(table)
        if flags & {"rows_overwritten", "rows_overwritten#2"}:
            mine[at] = rows
        else:
            np.add.at(mine, at, rows)
        if "duplicates_averaged" in flags:
            mine /= np.maximum(1, np.bincount(own, minlength=len(table)))[:, None]
        if flags & {"trainers_overwritten", "rows_overwritten#2"}:
            total[at] = mine[at]
        else:
            total += mine
    return total
