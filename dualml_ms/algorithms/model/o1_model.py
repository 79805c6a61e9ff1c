"""A model as generated source: a cell whose ``construct`` calls the layers one by one by name.

MindSpore's level O1 rewrites the source of a model, and must find each cell in it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mindspore import amp, nn

from dualml.algorithms.model.layers import Branch, Dropout, LayerNorm, Merge
from dualml_ms.algorithms.model import Network

HEAD = """from mindspore import nn


class Written(nn.Cell):
    def __init__(self, model):
        super().__init__(auto_prefix=False)
{cells}

    def construct(self, x{masks}):
{calls}
        return x
"""


def cell_source(network: Network) -> str:
    """Return the Python source of a cell class ``Written``, made of a network, that calls its
    layers one by one. It takes the network's inputs: samples, then the masks of the Dropout
    layers."""
    cells, calls, depth, masks = list[str](), list[str](), 0, list[str]()
    if network.spec.needs_padding_mask:
        calls.append("here = x != 0")
    for name, layer in network.spec.layers:
        if isinstance(layer, Branch):
            calls.append(f"kept{depth} = x")
            depth += 1
        elif isinstance(layer, Merge):
            depth -= 1
            calls.append(f"x = kept{depth} + x")
        elif isinstance(layer, Dropout):
            calls.append(f"x = x * {name}")
            masks.append(f", {name}")
        else:
            cells.append(f"self.{name} = model.{name}")
            calls.append(f"x = self.{name}(x{', here' if layer.needs_padding_mask else ''})")
    indented = ("\n".join(" " * 8 + line for line in lines) for lines in (cells, calls))
    return HEAD.format(masks="".join(masks), **dict(zip(("cells", "calls"), indented, strict=True)))


def convert_to_o1(network: Network) -> nn.Cell:
    """Return a cell that computes the network at level O1 of MindSpore's mixed precision and shares
    its parameters; its generated source lies in a temporary folder as long as the cell exists. The
    LayerNorm cells of ``network`` itself are replaced by MindSpore's."""
    folder = TemporaryDirectory(prefix="dualml-o1-")
    name = f"written_{Path(folder.name).name.replace('-', '_')}"
    path = Path(folder.name) / f"{name}.py"
    path.write_text(cell_source(network), "utf-8")
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # MindSpore reads the source from there
    module_spec.loader.exec_module(module)
    names = [(p, p.name) for p in network.trainable_params()]
    for cell_name, layer in network.spec.layers:
        if isinstance(layer, LayerNorm):
            setattr(network, cell_name, native_layer_norm(getattr(network, cell_name), layer))
    with contextlib.chdir(folder.name):  # output goes to the working directory
        model = amp.auto_mixed_precision(module.Written(network), "O1")
    for parameter, own_name in names:
        parameter.name = own_name
    model.folder = folder  # compilation reads the source that was written into it
    return model


def native_layer_norm(cell: nn.Cell, layer: LayerNorm) -> nn.LayerNorm:
    """Return MindSpore's own LayerNorm with the parameters of ``cell``, for level O1, whose
    rewriting confuses a class with a base of the same name."""
    norm = nn.LayerNorm((layer.features,), epsilon=layer.eps)
    norm.gamma, norm.beta = cell.weight, cell.bias
    return norm
