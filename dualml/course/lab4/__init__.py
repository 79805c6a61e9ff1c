"""Lab 4: a pipeline schedule, two pipeline stages, and tensor parallel layers."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab4.orders import schedule_requirements
from dualml.course.lab4.remote import rpc_requirements
from dualml.course.lab4.requirements import requirements

LAB = Lab(
    "lab4",
    (
        ExerciseFile("schedule.py", "", schedule_requirements()),
        ExerciseFile("split_torch.py", "torch", requirements()),
        ExerciseFile("rpc_torch.py", "torch", rpc_requirements()),
        ExerciseFile("split_ms.py", "mindspore", requirements()),
    ),
)
