"""PyTorch measurements of `dualml bench`, one file per section. Importing this imports no torch."""

from dualml.interface.bench.section import BenchSection

TIMES = ("variant", "milliseconds")
SECTIONS = (
    BenchSection(
        "tf32",
        "dualml_torch.bench.tf32:section",
        240,
        ("tf32", "arm", "against", "product", "convolution", "verdict", "envelopes", "noticed"),
    ),
    BenchSection(
        "amp",
        "dualml_torch.bench.amp:section",
        90,
        ("model", "precision", "milliseconds", "per_float32", "loss", "first_gap", "last_gap"),
    ),
    BenchSection("loop", "dualml_torch.bench.loop:section", 120, ("model", *TIMES, "per_ours")),
    BenchSection(
        "optimizer",
        "dualml_torch.bench.optimizer:section",
        150,
        ("rule", "model", *TIMES, "per_ours"),
    ),
    BenchSection(
        "collectives",
        "dualml_torch.bench.collectives:section",
        120,
        ("engine", "ranks", "collective", "bytes", "milliseconds", "right"),
    ),
    BenchSection(
        "memory",
        "dualml_torch.bench.memory:section",
        60,
        ("model", "variant", "allocated", "reserved"),
    ),
)
