"""Optional exercise "memory": the state of Adam sharded over the ranks (ZeRO, stage 1).

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", section 5.1.
"""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.memory.requirements import REQUIREMENTS

LAB = Lab(
    "memory",
    (
        ExerciseFile("zero_torch.py", "torch", REQUIREMENTS),
        ExerciseFile("zero_ms.py", "mindspore", REQUIREMENTS),
    ),
)
