"""Lab 4: a pipeline schedule, two pipeline stages, and tensor parallel layers."""

from dualml.course.exercise import File, Lab
from dualml.course.lab4.orders import of_schedule
from dualml.course.lab4.remote import of_rpc
from dualml.course.lab4.requirements import requirements

LAB = Lab(
    "lab4",
    (
        File("schedule.py", "", "dualml.course.solutions:schedule.py", of_schedule()),
        File("split_torch.py", "torch", "dualml_torch.course:split_torch.py", requirements()),
        File("rpc_torch.py", "torch", "dualml_torch.course:rpc_torch.py", of_rpc()),
        File("split_ms.py", "mindspore", "dualml_ms.course:split_ms.py", requirements()),
    ),
)
