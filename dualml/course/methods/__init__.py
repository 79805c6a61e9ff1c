"""Optional exercise "methods": dynamic loss scaling.

Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
"""

from dualml.course.exercise import File, Lab
from dualml.course.methods.requirements import REQUIREMENTS

LAB = Lab(
    "methods",
    (
        File("scaling_torch.py", "torch", "dualml_torch.course:scaling_torch.py", REQUIREMENTS),
        File("scaling_ms.py", "mindspore", "dualml_ms.course:scaling_ms.py", REQUIREMENTS),
    ),
)
