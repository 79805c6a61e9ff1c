"""How ranks talk: one semantics, executed by threads (NumPy), torch.distributed and MindSpore."""

from dualml.communicator.base import Communicator
from dualml.communicator.board import Board, FileBoard, MemoryBoard
from dualml.communicator.how import DTYPES, OPS, PRIMITIVES, How
from dualml.communicator.pending import Pending
from dualml.communicator.place import Place
from dualml.communicator.traffic import Traffic

__all__ = [
    "DTYPES",
    "OPS",
    "PRIMITIVES",
    "Board",
    "Communicator",
    "FileBoard",
    "How",
    "MemoryBoard",
    "Pending",
    "Place",
    "Traffic",
]
