"""Optional exercise "methods": dynamic loss scaling.

Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
"""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.methods.requirements import REQUIREMENTS

LAB = Lab(
    "methods",
    (
        ExerciseFile("scaling_torch.py", "torch", REQUIREMENTS),
        ExerciseFile("scaling_ms.py", "mindspore", REQUIREMENTS),
    ),
)
