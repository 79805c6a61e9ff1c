"""Lab 3: partitioning the samples over ranks, and data parallel training."""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.lab3.partitioning import function_requirements
from dualml.course.lab3.samplers import sampler_requirements
from dualml.course.lab3.skew import skew_requirements
from dualml.course.lab3.training import training_requirements

LAB = Lab(
    "lab3",
    (
        ExerciseFile(
            "partition.py",
            "",
            "dualml.course.solutions:partition.py",
            [*function_requirements(), *skew_requirements()],
        ),
        ExerciseFile(
            "sampler_torch.py",
            "torch",
            "dualml_torch.course:sampler_torch.py",
            sampler_requirements(),
        ),
        ExerciseFile(
            "sampler_ms.py", "mindspore", "dualml_ms.course:sampler_ms.py", sampler_requirements()
        ),
        ExerciseFile(
            "train_torch.py", "torch", "dualml_torch.course:train_torch.py", training_requirements()
        ),
        ExerciseFile(
            "train_ms.py", "mindspore", "dualml_ms.course:train_ms.py", training_requirements()
        ),
    ),
)
