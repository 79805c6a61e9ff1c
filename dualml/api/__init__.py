"""The Python API: what the command line does, for scripts and notebooks.

Users import these names from `dualml`.
"""

from dualml.api.comparing import compare as compare
from dualml.api.running import experiments as experiments
from dualml.api.running import run as run
from dualml.api.runs import Run as Run
from dualml.api.runs import load as load
from dualml.errors import UserError as UserError
