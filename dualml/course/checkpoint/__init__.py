"""Optional exercise "checkpoint": rank 0 saves a data parallel training, all ranks resume it."""

from dualml.course.checkpoint.requirements import REQUIREMENTS
from dualml.course.exercise import ExerciseFile, Lab

LAB = Lab(
    "checkpoint",
    (
        ExerciseFile("checkpoint_torch.py", "torch", REQUIREMENTS, uses_files=True),
        ExerciseFile("checkpoint_ms.py", "mindspore", REQUIREMENTS, uses_files=True),
    ),
)
