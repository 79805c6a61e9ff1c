"""Lab 1: GD, SGD and Adam."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab1.requirements import optimizer_requirements

LAB = Lab(
    "lab1",
    (
        ExerciseFile("optim_torch.py", "torch", optimizer_requirements("torch")),
        ExerciseFile("optim_ms.py", "mindspore", optimizer_requirements("mindspore")),
    ),
)
