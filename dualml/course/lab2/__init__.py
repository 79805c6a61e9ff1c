"""Lab 2: averaging gradients and parameters, a ring all-reduce, measuring an all-reduce, and
groups."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab2.groups import group_requirements
from dualml.course.lab2.requirements import requirements

LAB = Lab(
    "lab2",
    (
        ExerciseFile("aggregate_torch.py", "torch", requirements()),
        ExerciseFile("group_torch.py", "torch", group_requirements(rpc=True), starts_groups=True),
        ExerciseFile("aggregate_ms.py", "mindspore", requirements()),
        ExerciseFile("group_ms.py", "mindspore", group_requirements(rpc=False), starts_groups=True),
    ),
)
