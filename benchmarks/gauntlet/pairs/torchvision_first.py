"""Import torchvision beside another build of PyTorch, before the zoos try."""

from dualml_torch.experiment.data import import_torchvision

import_torchvision()
