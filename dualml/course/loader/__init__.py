"""Optional exercise "loader": batches of one rank's samples, epoch by epoch, that can be resumed.

A loader of one's own: it shuffles and shares the samples by seed and epoch, with or without the
remainder, and its state continues in the middle of an epoch.
"""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.loader.requirements import REQUIREMENTS

LAB = Lab(
    "loader",
    (
        ExerciseFile("loader_torch.py", "torch", REQUIREMENTS),
        ExerciseFile("loader_ms.py", "mindspore", REQUIREMENTS),
    ),
)
