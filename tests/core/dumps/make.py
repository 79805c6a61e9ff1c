"""Make the dumps that `test_imported.py` reads: ``python make.py``, with the tools installed.

    pip install --no-deps mindstudio-probe==26.2.0 troubleshooter==1.0.18   # and what they import

Both run on a CPU beside torch 2.13 and MindSpore 2.10. msprobe lacks the norm there, and
TroubleShooter two names that MindSpore no longer has: `TOOLS` puts them in place. Kept are tensors
and lists; not stacks, nor ``.pt`` files, beside which `dualml_torch.parity.dumped` has written
``.npy``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Name → tool, framework, level of detail, and whether GELU is the approximate one.
DUMPS = {
    "msprobe/torch": ("msprobe", "torch", "tensor", False),
    "msprobe/torch-tanh": ("msprobe", "torch", "tensor", True),
    "msprobe/torch-statistics": ("msprobe", "torch", "statistics", False),
    "msprobe/mindspore": ("msprobe", "mindspore", "tensor", False),
    "troubleshooter/torch": ("troubleshooter", "torch", "all", False),
    "troubleshooter/torch-tanh": ("troubleshooter", "torch", "statistics", True),
    "troubleshooter/mindspore": ("troubleshooter", "mindspore", "all", False),
}
WEIGHTS = """
import json, os, sys, types
import numpy as np
out, detail, tanh = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
draw = np.random.default_rng(0)
shapes = {"conv.weight": (2, 1, 3, 3), "conv.bias": (2,), "head.1.weight": (4, 72),
          "head.1.bias": (4,)}
weights = {n: draw.normal(size=s, scale=0.2).astype(np.float32) for n, s in shapes.items()}
batch = draw.normal(size=(3, 1, 8, 8)).astype(np.float32)
config = {"task": detail, "dump_path": out, "rank": [], "step": [], "level": "L0",
          "async_dump": False, detail: {"scope": [], "list": [], "data_mode": ["all"]}}
"""
#: Hides each framework from the other's dump: TroubleShooter imports whatever it finds.
HIDDEN = """
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise ModuleNotFoundError("No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
MODELS = {
    "torch": """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.act = nn.GELU("tanh" if tanh else "none")
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(72, 4))
    def forward(self, x):
        return self.head(self.act(self.conv(x)))
net = Net()
net.load_state_dict({n: torch.tensor(w) for n, w in weights.items()})
x, y = torch.tensor(batch), torch.tensor([0, 1, 2])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def learn():
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
def update(_):
    optimizer.step()
""",
    "mindspore": """
import mindspore as ms
from mindspore import Tensor, mint, nn
ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="pad", padding=0, has_bias=True)
        self.act = nn.GELU(approximate=tanh)
        self.head = nn.SequentialCell(nn.Flatten(), nn.Dense(72, 4))
    def construct(self, x):
        return self.head(self.act(self.conv(x)))
net = Net()
for p in net.get_parameters():
    p.set_data(Tensor(weights[p.name]))
x, y = Tensor(batch), Tensor(np.array([0, 1, 2], np.int32))
optimizer, loss = nn.SGD(net.trainable_params(), learning_rate=0.1), nn.CrossEntropyLoss()
grad = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)
def learn():
    return grad(x, y)[1]
def update(gradients):
    optimizer(gradients)
""",
}
TOOLS = {
    ("msprobe", "torch"): "from msprobe.pytorch import PrecisionDebugger",
    ("msprobe", "mindspore"): """
mint.norm = lambda data, *a, **k: Tensor(np.float32(np.linalg.norm(data.asnumpy())))
from msprobe.mindspore import PrecisionDebugger
""",
    ("troubleshooter", "torch"): "import troubleshooter as ts",
    ("troubleshooter", "mindspore"): """
ms.common._stub_tensor = types.SimpleNamespace(StubTensor=ms.Tensor)
import mindspore.common.api as api
api._MindsporeFunctionExecutor = object
import troubleshooter as ts
""",
}
RECORDS = {
    "msprobe": """
os.makedirs(out, exist_ok=True)
json.dump(config, open(out + ".json", "w"))
debugger = PrecisionDebugger(config_path=out + ".json")
for step in range(2):
    debugger.start(net)
    gradients = learn()
    debugger.stop()
    update(gradients)
    debugger.step()
""",
    "troubleshooter": """
ts.migrator.api_dump_init(net, output_path=out, retain_backward=True)
ts.migrator.api_dump_start(dump_type=detail)
learn()
ts.migrator.api_dump_stop()
""",
}


def make_dump(folder: Path, tool: str, framework: str, detail: str, tanh: bool) -> None:
    """Make one dump in a separate process."""
    other = {"torch": "mindspore", "mindspore": "torch"}[framework]
    hidden = HIDDEN.format(name=other) if tool == "troubleshooter" else ""
    parts = (WEIGHTS, hidden, MODELS[framework], TOOLS[tool, framework], RECORDS[tool])
    env = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    script = folder.with_name("script.py")  # TroubleShooter asks for the lines of its callers
    script.write_text("".join(parts))
    words = [sys.executable, "-P", str(script), str(folder), detail, str(tanh)]
    subprocess.run(words, check=True, env=env, timeout=600)
    if (tool, framework, detail) == ("msprobe", "torch", "tensor"):
        convert = [sys.executable, "-m", "dualml_torch.parity.dumped", str(folder)]
        subprocess.run(convert, check=True, timeout=600)
    for number, place in enumerate(sorted(folder.glob("step*/proc*"))):
        head = json.loads((place / "dump.json").read_text())
        head["dump_data_dir"] = "dump_tensor_data"  # where it lay is nobody's business
        (place / "dump.json").write_text(json.dumps(head))
        place.rename(place.with_name(f"proc{number}"))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as temporary,
        tarfile.open(HERE / "dumps.tar.xz", "w:xz") as archive,
    ):
        for name, how in DUMPS.items():
            folder = Path(temporary) / name
            folder.parent.mkdir(exist_ok=True)
            make_dump(folder, *how)
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix != ".pt" and "stack" not in path.name:
                    path.chmod(0o644)
                    archive.add(path, str(path.relative_to(temporary)), filter=nobody)


def nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uname, info.gname, info.uid, info.gid, info.mtime = "", "", 0, 0, 0
    return info


if __name__ == "__main__":
    main()
