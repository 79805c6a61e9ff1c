"""Communication between ranks: one semantics, executed by threads (NumPy), torch.distributed and
MindSpore."""

from dualml.algorithms.communicator.base import Communicator as Communicator
from dualml.algorithms.communicator.how import BITWISE as BITWISE
from dualml.algorithms.communicator.how import DTYPES as DTYPES
from dualml.algorithms.communicator.how import OPS as OPS
from dualml.algorithms.communicator.how import PRIMITIVES as PRIMITIVES
from dualml.algorithms.communicator.how import Implementation as Implementation
from dualml.algorithms.communicator.how import WorkHandle as WorkHandle
from dualml.algorithms.communicator.place import FileStore as FileStore
from dualml.algorithms.communicator.place import MemoryStore as MemoryStore
from dualml.algorithms.communicator.place import RankContext as RankContext
