"""Typical mistakes in the same start and in an update: groups, places, and errors that show one."""

from __future__ import annotations

from dualml.course.lab3.weights import gradient_weights, mark_with_loss
from dualml.course.mistakes import mistake_groups

LOCAL, SCALED, SHARES, EMPTY, LOSS, EMPTY_LOSS = mistake_groups(
    "lab3", "local", "scaled", "shares", "empty", "loss", "empty_loss"
)
#: Mistakes in the weights that gradients and losses have in common.
WITH_LOSS = tuple(
    mark_with_loss(flag)
    for flag in ("update_unweighted", *SCALED, *SHARES)
    if flag in gradient_weights((1,), (1,), float) and flag != "update_sign"
)
EMPTY_WITH_LOSS = tuple(map(mark_with_loss, EMPTY[2:]))
#: Mistakes that show without any communication.
ONE_RANK_MISTAKES = (
    "update_accumulated",
    "update_nothing",
    "update_twice",
    "update_late",
    "update_late#2",
)
#: Pattern of the errors that occur if one rank does not take part.
RANK_MISMATCH = r"CommunicationError: (rank \d+ waited|the ranks disagree)"
#: Pattern of the error of `train_steps` if an update returns no number.
NO_LOSS = (r"train_step\(…\): ", "update_loss_missing")
#: Patterns of errors that occur if a rank without samples computes as if it had some.
EMPTY_ERRORS = (
    (r"(TypeError|AttributeError|ValueError): .*None", "update_empty_error"),
    (r"ZeroDivisionError", "update_empty_error"),
    (r"RuntimeError: .*(does not require grad|grad_fn)", "update_empty_error"),
)
#: Places of a mistake in an update: axes are those of `dualml.course.lab3.rules`.
PLACES = (
    *("rank=0", "rank=!0", "rank=-1", "rank=!-1", "rank=1", "sender=0", "sender=!0", "sender=-1"),
    *("step=0", "step=!0", "step=-1", "tensor=0", "tensor=!0", "tensor=-1", "tensor=!-1"),
    *("tensor=1", "tensor=2", "dim=1", "dim=2"),
)
#: Mistakes in the same start, and errors that show one.
START = (
    *("start_not_broadcast", "start_averaged", "start_summed", "start_other_root"),
    *("start_other_root#2", "start_first_alone", "start_buffers_left", "start_replaced"),
)
START_ERRORS = (
    ("ranks disagree.*broadcast.*root=1", "start_own_root"),
    (RANK_MISMATCH, "start_root_alone"),
)
START_PLACES = (
    *("rank=1", "rank=-1", "tensor=!0", "tensor=0", "tensor=1", "tensor=2", "tensor=3"),
    *("dim=1", "dim=2"),
)
