"""The Python API: what the command line does, for scripts and notebooks.

Users import these names from `dualml`.
"""

from dualml.common.errors import UserError as UserError
from dualml.interface.api.comparing import compare as compare
from dualml.interface.api.running import experiments as experiments
from dualml.interface.api.running import run as run
from dualml.interface.api.runs import Run as Run
from dualml.interface.api.runs import load as load
