"""Lab 1: GD, SGD and Adam."""

from dualml.course.exercise import File, Lab
from dualml.course.lab1.requirements import of

LAB = Lab(
    "lab1",
    (
        File("optim_torch.py", "torch", "dualml_torch.course:optim_torch.py", of("torch")),
        File("optim_ms.py", "mindspore", "dualml_ms.course:optim_ms.py", of("mindspore")),
    ),
)
