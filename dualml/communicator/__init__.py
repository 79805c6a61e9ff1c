"""Communication between ranks: one semantics, executed by threads (NumPy), torch.distributed and
MindSpore."""

from dualml.communicator.base import Communicator as Communicator
from dualml.communicator.how import BITWISE as BITWISE
from dualml.communicator.how import DTYPES as DTYPES
from dualml.communicator.how import OPS as OPS
from dualml.communicator.how import PRIMITIVES as PRIMITIVES
from dualml.communicator.how import How as How
from dualml.communicator.how import Pending as Pending
from dualml.communicator.place import FileBoard as FileBoard
from dualml.communicator.place import MemoryBoard as MemoryBoard
from dualml.communicator.place import Place as Place
