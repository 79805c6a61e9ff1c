"""Lab 2: sums of gradients, means of parameters, a ring, and what an all-reduce takes."""

from dualml.course.exercise import File, Lab
from dualml.course.lab2.requirements import requirements

LAB = Lab(
    "lab2",
    (
        File("aggregate_torch.py", "torch", "dualml_torch.course:aggregate_torch.py",
             requirements()),
        File("aggregate_ms.py", "mindspore", "dualml_ms.course:aggregate_ms.py", requirements()),
    ),
)  # fmt: skip
