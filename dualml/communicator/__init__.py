"""Communication between ranks: one semantics, executed by threads (NumPy), torch.distributed and
MindSpore."""

from dualml.communicator.base import Communicator as Communicator
from dualml.communicator.how import BITWISE as BITWISE
from dualml.communicator.how import DTYPES as DTYPES
from dualml.communicator.how import OPS as OPS
from dualml.communicator.how import PRIMITIVES as PRIMITIVES
from dualml.communicator.how import Implementation as Implementation
from dualml.communicator.how import WorkHandle as WorkHandle
from dualml.communicator.place import FileStore as FileStore
from dualml.communicator.place import MemoryStore as MemoryStore
from dualml.communicator.place import RankContext as RankContext
