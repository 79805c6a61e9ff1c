"""Optional exercise "bottleneck": find the node that holds up the others, and share the work.

Computing, sending and waiting are measured on each rank; the slow rank and its reason are named;
the batch is shared in proportion to speed, with a gradient that stays that of the whole batch.
"""

from dualml.course.bottleneck.requirements import REQUIREMENTS
from dualml.course.exercise import ExerciseFile, Lab

LAB = Lab(
    "bottleneck",
    (
        ExerciseFile("bottleneck_torch.py", "torch", REQUIREMENTS),
        ExerciseFile("bottleneck_ms.py", "mindspore", REQUIREMENTS),
    ),
)
