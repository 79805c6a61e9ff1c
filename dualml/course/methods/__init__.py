"""Optional exercise "methods": dynamic loss scaling.

Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
"""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.methods.requirements import REQUIREMENTS

LAB = Lab(
    "methods",
    (
        ExerciseFile(
            "scaling_torch.py", "torch", "dualml_torch.course:scaling_torch.py", REQUIREMENTS
        ),
        ExerciseFile("scaling_ms.py", "mindspore", "dualml_ms.course:scaling_ms.py", REQUIREMENTS),
    ),
)
