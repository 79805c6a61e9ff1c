"""Lab 2: averaging gradients and parameters, a ring all-reduce, measuring an all-reduce, and
groups."""

from dualml.course.exercise import File, Lab
from dualml.course.lab2.groups import of_groups
from dualml.course.lab2.requirements import requirements

LAB = Lab(
    "lab2",
    (
        File("aggregate_torch.py", "torch", "dualml_torch.course:aggregate_torch.py",
             requirements()),
        File("group_torch.py", "torch", "dualml_torch.course:group_torch.py",
             of_groups(rpc=True), starts_groups=True),
        File("aggregate_ms.py", "mindspore", "dualml_ms.course:aggregate_ms.py", requirements()),
        File("group_ms.py", "mindspore", "dualml_ms.course:group_ms.py",
             of_groups(rpc=False), starts_groups=True),
    ),
)  # fmt: skip
