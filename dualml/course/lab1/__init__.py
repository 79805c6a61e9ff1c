"""Lab 1: GD, SGD and Adam."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab1.requirements import optimizer_requirements

LAB = Lab(
    "lab1",
    (
        ExerciseFile(
            "optim_torch.py",
            "torch",
            "dualml_torch.course:optim_torch.py",
            optimizer_requirements("torch"),
        ),
        ExerciseFile(
            "optim_ms.py",
            "mindspore",
            "dualml_ms.course:optim_ms.py",
            optimizer_requirements("mindspore"),
        ),
    ),
)
