"""The framework of a model is found in its source, without importing it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dualml.parity.models.model_ref import to_import_spec
from dualml.parity.models.source_frameworks import find_framework


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Return a function that writes a file and returns the name of its model ``Net``."""

    def write_source(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return f"{path}:Net"

    return write_source


BOTH = "import torch\nfrom mindspore import nn, ops\n"


@pytest.mark.parametrize(
    ("source", "framework"),
    [
        ("from torch import nn\n", "torch"),
        ("import mindspore.nn as nn\n", "mindspore"),
        (
            "def Net():\n    from mindcv.models import resnet18\n    return resnet18()\n",
            "mindspore",
        ),
        ("import flax.linen as nn\n", "jax"),
        ("import numpy\n", None),
        ("this is not Python\n", None),
        (f"{BOTH}class Net(nn.Cell): ...\n", "mindspore"),
        (f"{BOTH}class Net(torch.nn.Module): ...\n", "torch"),
        (f"{BOTH}class Base(nn.Cell): ...\nclass Net(Base): ...\n", "mindspore"),
        (f"{BOTH}class Own(torch.nn.Module): ...\ndef Net():\n    return Own()\n", "torch"),
        (f"{BOTH}def Net():\n    return torch.zeros(1), ops.ones(1)\n", None),
    ],
)
def test_a_framework_is_found_in_the_source(
    write: Callable[[str, str], str], source: str, framework: str | None
) -> None:
    model = write("net.py", source)
    assert find_framework(model, to_import_spec(model, "model A")) == framework


def test_a_framework_is_found_in_what_the_file_imports(write: Callable[[str, str], str]) -> None:
    write("parts/__init__.py", "")
    write("parts/layers.py", "from .deep import Layer\n")
    write("parts/deep.py", "import mindspore\n")
    write("local_torch.py", "import torch\n")
    for text, framework in (
        ("from parts.layers import Layer as Net\n", "mindspore"),
        ("from local_torch import Net\n", "torch"),
        ("import json, numpy\n", None),
    ):
        model = write("net.py", text)
        assert find_framework(model, to_import_spec(model, "model A")) == framework


def test_a_framework_is_found_by_the_name_of_a_package_and_by_base_classes() -> None:
    zoo = "torchvision.models:resnet18"
    assert find_framework(zoo, to_import_spec(zoo, "model A")) == "torch"
    base = type("Module", (), {"__module__": "torch.nn.modules.module"})
    net = type("Net", (base,), {"__module__": __name__})
    assert find_framework(net, {"module": __name__, "file": __file__, "name": "Net"}) == "torch"
