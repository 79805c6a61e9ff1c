"""Optional exercise "rnn_ps": a recurrent language model with a parameter server.

Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", OSDI.
"""

from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.rnn_ps.remote import REMOTE
from dualml.course.rnn_ps.server import SERVER

LAB = Lab(
    "rnn_ps",
    (
        ExerciseFile("server_torch.py", "torch", SERVER),
        ExerciseFile("remote_torch.py", "torch", REMOTE),
        ExerciseFile("server_ms.py", "mindspore", SERVER),
    ),
)
