"""The measured trials, the changes of rounding, and the planted errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Record = dict[str, Any]

FRAMEWORKS = ("torch", "mindspore")
MARGIN = 10.0
#: The last layer with parameters of the model below.
OUTPUT = "fc2"
UPDATES = 50
HORIZONS = (1, 10, 50)
PHASES = ("forward", "loss", "gradient", "update", "state")
#: Seeds of every change of part 1, and of the arms with several ranks.
CHANGE_SEEDS, RANK_SEEDS, RANK_UPDATES = 3, 1, 20
CHUNKS = (24, 8)
STRATEGIES = ("all_reduce", "ring", "tree")
RULES = {
    "adam": '{ name = "adam", lr = 0.001 }',
    "sgd": '{ name = "sgd", lr = 0.02 }',
}
HEAD = """name = "power"
model = "lenet"
loss = "cross_entropy"
[title]
en = "Power"
zh = "功效"
[data]
name = "digits"
train = 512
test = 64
[evaluation]
per_epoch = 1
early = []
train_samples = 64
[parity]
draws = {draws}
horizon = {horizon}
share = 0
"""
#: Framework → changes compared within it: the group, the name, and the settings of a change.
CHANGES: dict[str, list[tuple[str, str, Record]]] = {
    "torch": [
        ("threads", "2 threads", {"threads": 2}),
        ("threads", "4 threads", {"threads": 4}),
        ("isa", "ONEDNN_MAX_CPU_ISA=SSE41", {"env": {"ONEDNN_MAX_CPU_ISA": "SSE41"}}),
        ("isa", "ATEN_CPU_CAPABILITY=default", {"env": {"ATEN_CPU_CAPABILITY": "default"}}),
        ("isa", "MKL_CBWR=COMPATIBLE", {"env": {"MKL_CBWR": "COMPATIBLE"}}),
        ("kernels", "torch.backends.mkldnn off", {"mkldnn": False}),
    ],
    "mindspore": [
        ("threads", "2 threads", {"threads": 2}),
        ("threads", "4 threads", {"threads": 4}),
        ("isa", "ONEDNN_MAX_CPU_ISA=DEFAULT", {"env": {"ONEDNN_MAX_CPU_ISA": "DEFAULT"}}),
        ("isa", "ONEDNN_MAX_CPU_ISA=SSE41", {"env": {"ONEDNN_MAX_CPU_ISA": "SSE41"}}),
    ],
}
#: Planted error → its arms, and the decades of its relative size δ.
PLANTS: dict[str, tuple[tuple[str, ...], tuple[int, int]]] = {
    "layer": (("adam", "sgd"), (-7, -2)),
    "gradient": (("adam", "sgd"), (-7, -2)),
    "rate": (("adam", "sgd"), (-7, -2)),
    "eps": (("adam",), (-3, 1)),
}


def experiment(folder: Path) -> Path:
    """Return the experiment file of the usual arms, and of those that sum a batch in other
    chunks."""
    text = HEAD.format(draws=3, horizon=UPDATES)
    for arm, rule in RULES.items():
        for chunk in (None, *CHUNKS):
            name = arm if chunk is None else f"{arm}-chunk{chunk}"
            text += f"[arms.{name}]\noptimizer = {rule}\nbatch_size = 32\nupdates = {UPDATES}\n"
            text += "" if chunk is None else f"chunk = {chunk}\n"
    path = folder / "power.toml"
    path.write_text(text, "utf-8")
    return path


def rank_experiment(folder: Path) -> Path:
    """Return the same experiment with four ranks; the draws are those of the usual arms."""
    text = HEAD.format(draws=1, horizon=RANK_UPDATES)
    for arm, rule in RULES.items():
        for strategy in STRATEGIES:
            text += f"[arms.{arm}-{strategy}]\nworld_size = 4\noptimizer = {rule}\n"
            text += f"batch_size = 32\nupdates = {RANK_UPDATES}\n"
            text += f'aggregation = {{ strategy = "{strategy}" }}\n'
    path = folder / "power_ranks.toml"
    path.write_text(text, "utf-8")
    return path
