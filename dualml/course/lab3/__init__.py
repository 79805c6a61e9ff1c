"""Lab 3: partitioning the samples over ranks, and data parallel training."""

from dualml.course.exercise import File, Lab
from dualml.course.lab3.dealt import of_functions
from dualml.course.lab3.samplers import of_sampler
from dualml.course.lab3.skew import of_skew
from dualml.course.lab3.training import of_training

LAB = Lab(
    "lab3",
    (
        File("partition.py", "", "dualml.course.solutions:partition.py",
             [*of_functions(), *of_skew()]),
        File("sampler_torch.py", "torch", "dualml_torch.course:sampler_torch.py", of_sampler()),
        File("sampler_ms.py", "mindspore", "dualml_ms.course:sampler_ms.py", of_sampler()),
        File("train_torch.py", "torch", "dualml_torch.course:train_torch.py", of_training()),
        File("train_ms.py", "mindspore", "dualml_ms.course:train_ms.py", of_training()),
    ),
)  # fmt: skip
