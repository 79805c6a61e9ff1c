"""Optional exercise "accumulation": gradients of micro-batches with unequal numbers of tokens.

An update must be that of one big batch: the sum of the tokens' losses over the number of tokens,
over micro-batches and ranks, however the tokens are spread over them.
"""

from dualml.course.accumulation.requirements import REQUIREMENTS
from dualml.course.exercise import ExerciseFile, Lab

LAB = Lab(
    "accumulation",
    (
        ExerciseFile("accumulate_torch.py", "torch", REQUIREMENTS),
        ExerciseFile("accumulate_ms.py", "mindspore", REQUIREMENTS),
    ),
)
