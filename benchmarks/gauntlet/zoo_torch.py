"""PyTorch's side of the pairs: torchvision, timm and transformers."""

from dualml_torch.experiment.data import import_torchvision

import_torchvision()  # timm and transformers would, plainly: see there

import timm  # noqa: E402, F401
import torchvision  # noqa: E402, F401
