"""Lab 3: partitioning the samples over ranks, and data parallel training."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab3.partitioning import function_requirements
from dualml.course.lab3.samplers import sampler_requirements
from dualml.course.lab3.skew import skew_requirements
from dualml.course.lab3.training import training_requirements

LAB = Lab(
    "lab3",
    (
        ExerciseFile("partition.py", "", [*function_requirements(), *skew_requirements()]),
        ExerciseFile("sampler_torch.py", "torch", sampler_requirements()),
        ExerciseFile("sampler_ms.py", "mindspore", sampler_requirements()),
        ExerciseFile("train_torch.py", "torch", training_requirements()),
        ExerciseFile("train_ms.py", "mindspore", training_requirements()),
    ),
)
