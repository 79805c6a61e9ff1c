"""Groups of typical mistakes of Lab 1 by what reveals them, and errors that show a mistake."""

from __future__ import annotations

from dualml.course.mistakes import mistake_groups

COMMON, GRADIENT, DECAY, MOMENTUM, PLAIN, NESTEROV, MOMENTS, CORRECTION, GROUPS = mistake_groups(
    "lab1",
    "common",
    "gradient",
    "decay",
    "momentum",
    "plain_momentum",
    "nesterov",
    "moments",
    "correction",
    "groups",
)
#: Mistakes in the gradient of Adam, in which a late gradient, first 0, is that of late moments.
ADAM_GRADIENT = tuple(flag for flag in GRADIENT if flag != "gradient_late")
#: Mistakes in SGD with weight decay.
SGD_DECAY = (*DECAY, "decay_decoupled", "decay_no_lr", "decay_afterwards")
#: Mistakes in decoupled decay.
DECOUPLED = (
    "decay_ignored#2",
    "nothing#2",
    "always_coupled",
    "decoupled_no_lr",
    "decoupled_late",
    "decoupled_twice",
    "decoupled_twice#2",
    "decoupled_factor",
    "decoupled_factor#2",
    "decoupled_factor#3",
)
#: Mistakes in Adam's coupled decay: also moments that take in, or begin with, the gradient without
#: decay.
ADAM_DECAY = (
    *DECAY,
    "always_decoupled",
    "first_undecayed",
    "second_undecayed",
    "moments_of_gradient#6",
    "moments_of_gradient#7",
    "moments_of_gradient#8",
    "moments_of_gradient#9",
)
#: Mistakes in state that several optimizers share: all of it, the counter, by parameter, the
#: settings …
OF_CLASS = tuple(
    f"state_of_class{form}" for form in ("", "#2", "#3", "#4", "#5", "#6", "#7", "#8", "#9", "#10")
)
#: Patterns of errors that say that tensors of two shapes were combined.
SHAPES_DIFFER = (
    (r"RuntimeError: (The size of tensor a|output with shape|shape mismatch)", "other_parameter"),
    (
        r"(ValueError|RuntimeError|TypeError): .*([Bb]roadcast|must have the same (rank|shape) as)",
        "other_parameter",
    ),
)
#: Patterns of errors in MindSpore: a rate is looked up by the update's number, so that there is one
#: for each update, and ``self.learning_rate`` may be what looks it up.
RATES = (
    ("Gather.*input_indices", "counter_ahead"),
    ("_IteratorLearningRate|_ConvertToCell|LearningRateSchedule|'method'", "rate_not_looked_up"),
)
