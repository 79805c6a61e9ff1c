"""Lab 2: averaging gradients and parameters, a ring all-reduce, measuring an all-reduce, and
groups."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab2.groups import group_requirements
from dualml.course.lab2.requirements import requirements

LAB = Lab(
    "lab2",
    (
        ExerciseFile(
            "aggregate_torch.py", "torch", "dualml_torch.course:aggregate_torch.py", requirements()
        ),
        ExerciseFile(
            "group_torch.py",
            "torch",
            "dualml_torch.course:group_torch.py",
            group_requirements(rpc=True),
            starts_groups=True,
        ),
        ExerciseFile(
            "aggregate_ms.py", "mindspore", "dualml_ms.course:aggregate_ms.py", requirements()
        ),
        ExerciseFile(
            "group_ms.py",
            "mindspore",
            "dualml_ms.course:group_ms.py",
            group_requirements(rpc=False),
            starts_groups=True,
        ),
    ),
)
