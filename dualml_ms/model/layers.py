"""Each layer of the neutral spec as the `mindspore.nn` cell that means the same.

Every argument is given: MindSpore's defaults are other ones (convolutions pad to 'same' and have no
bias, pooling moves by one).
"""

from __future__ import annotations

from mindspore import nn

from dualml.model import spec


def realise(layer: spec.Layer) -> nn.Cell:
    """The cell for one layer spec.

    Raises:
        NotImplementedError: a layer this backend does not know; never a near miss.
    """
    match layer:
        case spec.Linear(inputs, outputs):
            return nn.Dense(inputs, outputs, has_bias=True)
        case spec.Conv2d(inputs, outputs, kernel, padding):
            return nn.Conv2d(
                inputs, outputs, kernel, stride=1, pad_mode="pad", padding=padding, has_bias=True
            )
        case spec.MaxPool2d(kernel):
            return nn.MaxPool2d(kernel_size=kernel, stride=kernel, pad_mode="valid")
        case spec.ReLU():
            return nn.ReLU()
        case spec.Tanh():
            return nn.Tanh()
        case spec.Flatten():
            return nn.Flatten()
    raise NotImplementedError(f"dualml_ms has no layer {type(layer).__name__}")
