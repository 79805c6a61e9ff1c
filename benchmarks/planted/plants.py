"""The planted mistakes: where each shows first, and the causes that a finder should name.

`PLANTS` reach the verdict and the finder; `REFUSED` fail the trial before that.
The code is in `in_torch` and `in_mindspore` (and in `neutral` for what both do in the core).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plant:
    """One mistake.

    Attributes:
        phase: phase of an update in which it acts.
        causes: the finder's names for it that count as right.
        about: description of the change.
    """

    name: str
    arm: str
    phase: str
    causes: tuple[str, ...]
    about: str

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases in which it may show first. An optimizer's mistake shows in the weights or in the
        optimizer state; the state is updated later but is more sensitive in the first updates."""
        return ("update", "state") if self.phase in ("update", "state") else (self.phase,)


def make_plants(arm: str, phase: str, rows: dict[str, tuple[str, str]]) -> list[Plant]:
    return [
        Plant(name, arm, phase, tuple(causes.split()), about)
        for name, (causes, about) in rows.items()
    ]


PLANTS: dict[str, Plant] = {
    plant.name: plant
    for plant in [
        *make_plants("adam", "update", {
            "adam-hat": ("adam-epsilon", "epsilon in the form of MindSpore's nn.Adam"),
            "no-bias-correction": ("bias-correction", "averages used as they are"),
            "small-epsilon": ("other-epsilon", "eps 1e-8 instead of 1e-3"),
            "epsilon-inside": ("eps-inside-root", "√(v̂ + ε) instead of √v̂ + ε"),
            "late-count": ("step-counter", "the bias is corrected for update t + 1"),
            "half-gradient": ("half-precision", "gradients as float16 before the update"),
            "half-state": ("half-precision", "weights kept in float16"),
            "twice": ("updated-twice", "the optimizer is called twice"),
            "left-out": ("frozen-parameters", "the last bias is not given to the optimizer"),
        }),
        # The bias correction hides another β₂ in the very first update, but not in the state.
        *make_plants("adam", "state", {"beta2": ("other-betas", "β₂ 0.99 instead of 0.999")}),
        *make_plants("adamw", "update", {
            "coupled": ("decay-coupling", "Adam instead of AdamW"),
            "no-decay": ("missing-decay", "no weight decay"),
            "bare-biases": ("decay-filter", "biases are not decayed"),
        }),
        *make_plants("sgd", "update", {
            "no-momentum": ("missing-momentum", "no momentum"),
            "dampened": ("dampening", "dampening 0.9"),
            "early-schedule": ("schedule-counter", "the schedule is one update ahead"),
            "late-schedule": ("schedule-counter", "the schedule is one update behind"),
            "default-rate": ("default-rate", "a rate of 0.1"),
            "stale-gradient": ("stale-gradient", "the gradient of the update before"),
        }),
        *make_plants("nesterov", "update", {
            "nesterov-ignored": ("nesterov", "plain momentum"),
            "by-epoch": ("schedule-by-epoch schedule-ignored", "the schedule moves once an epoch"),
        }),
        *make_plants("rmsprop", "update", {
            "root-inside": ("eps-inside-root", "√(v + ε) instead of √v + ε"),
            "alpha": ("other-alpha", "α 0.9 instead of 0.99"),
            "first-square": ("state-start", "v begins at 1"),
        }),
        *make_plants("adagrad", "update", {"accumulator": ("state-start", "G begins at 0.1")}),
        *make_plants("adam", "loss", {
            "summed-loss": ("sum-not-mean", "sum instead of mean"),
            "smoothing": ("label-smoothing", "labels smoothed by 0.1"),
            "softmax-twice": ("softmax-twice", "a softmax before the loss"),
            "ignored-class": ("ignored-class", "class 0 does not count"),
            "penalty": ("penalty-in-loss", "λ/2·‖θ‖² in the loss"),
        }),
        *make_plants("rnn", "loss", {
            "eval-mode": ("eval-mode", "dropout does nothing in training"),
        }),
        *make_plants("adam", "data", {
            "labels": ("shifted-labels", "every label one too high"),
            "dropped": ("dropped-samples", "the last sample of a batch is lost"),
            "padded": ("padded-duplicates", "a short batch is filled up with its first samples"),
            "not-normalised": ("not-normalised", "mean and deviation are not applied"),
            "transposed": ("image-layout", "height and width are swapped"),
            "half-images": ("half-precision", "images as float16"),
            "next-batch": ("other-update", "the batch of the next update"),
        }),
        *make_plants("lenet", "forward", {
            "uneven-padding": ("shifted-padding", "the border is put to one side"),
            "leaky": ("leaky-relu", "LeakyReLU with slope 0.2"),
            "gelu": ("gelu", "GELU instead of ReLU"),
            "average-pool": ("average-pool", "mean instead of maximum"),
            "no-bias": ("missing-bias", "the last layer has no bias"),
            "half-layer": ("half-precision", "a layer's output as float16"),
            "stale-weights": ("stale-parameters", "a layer keeps the weights of the start"),
        }),
        *make_plants("vit", "forward", {
            "norm-epsilon": ("layernorm-eps", "LayerNorm with eps 1e-7"),
            "attention-scale": ("attention-scale", "scores are not divided by √d"),
            "causal": ("attention-mask", "attention sees only what came before"),
        }),
        *make_plants("llama", "forward", {
            "rms-epsilon": ("rmsnorm-eps", "RMSNorm with eps 1e-5"),
            "shifted-gain": ("shifted-gain", "RMSNorm times one plus its weight"),
            "swapped-gate": ("swapped-gate", "SwiGLU's halves are swapped"),
            "relu-gate": ("other-gate", "ReLU in the gate"),
        }),
        *make_plants("rnn", "forward", {
            "gates": ("gate-order", "gates in another order (i g f o)"),
        }),
        *make_plants("adam", "gradient", {
            "clipped": ("clipped-gradient", "clipped at a norm of 0.5"),
            "detached": ("frozen-parameters", "the first layer gets no gradient"),
            "scaled": ("sum-not-mean", "gradient of the sum, loss of the mean"),
        }),
        *make_plants("nodes", "gradient", {"rank-sum": ("sum-not-mean", "ranks are not averaged")}),
        *make_plants("nodes", "aggregation", {
            "averaged-twice": ("averaged-twice", "divided by the ranks once more"),
            "unsynchronised": ("unsynchronised-rank", "rank 0 keeps its own, then sends weights"),
            "lost-rank": ("lost-rank", "rank 1 sends zeros"),
            "lost-bucket": ("not-aggregated", "rank 0 keeps its second bucket, then sends weights"),
            "half-sum": ("half-precision", "rounded to float16 before it is sent"),
        }),
        *make_plants("nodes", "data", {"same-part": ("not-partitioned", "rank 1 gets rank 0's")}),
        *make_plants("pipeline", "gradient", {
            "lost-micro-batch": ("lost-micro-batch", "the third micro-batch counts nothing"),
            "summed-micro-batches": ("sum-not-mean", "micro-batches are added up"),
        }),
    ]
}  # fmt: skip

#: Words by which a trial fails whose ranks no longer train the same model.
APART = "ranks trained apart"
#: Mistakes that fail the trial: there is no verdict, and nothing for the finder to explain.
REFUSED: dict[str, Plant] = {
    plant.name: plant
    for plant in make_plants("nodes", "aggregation", {
        "apart": ("", "rank 1 keeps its own gradient"),
        "bucket-apart": ("", "the second bucket of rank 1 is not summed"),
        "short-sum": ("", "sent as float16"),
    })
}  # fmt: skip
