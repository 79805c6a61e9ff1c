"""Communication between ranks: one semantics, executed by threads (NumPy), torch.distributed and
MindSpore."""

from dualml.algorithms.communicator.base import Communicator as Communicator
from dualml.algorithms.communicator.primitives import BITWISE as BITWISE
from dualml.algorithms.communicator.primitives import DTYPES as DTYPES
from dualml.algorithms.communicator.primitives import OPS as OPS
from dualml.algorithms.communicator.primitives import PRIMITIVES as PRIMITIVES
from dualml.algorithms.communicator.primitives import Implementation as Implementation
from dualml.algorithms.communicator.primitives import WorkHandle as WorkHandle
from dualml.algorithms.communicator.rendezvous import FileStore as FileStore
from dualml.algorithms.communicator.rendezvous import MemoryStore as MemoryStore
from dualml.algorithms.communicator.rendezvous import RankContext as RankContext
from dualml.common.former_members import former_names

__getattr__ = former_names(
    __name__,
    {
        "FileBoard": "FileStore",
        "How": "Implementation",
        "MemoryBoard": "MemoryStore",
        "Place": "RankContext",
    },
)
