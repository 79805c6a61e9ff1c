"""Interface between the framework-neutral core and a framework.

`BackendInfo` holds what the parent process knows of a backend. `Backend` and `Training` are what
every framework implements in a worker process. The classes in `capability` are optional features
that only some of them implement.
"""

from dualml.backend.ability import Ability as Ability
from dualml.backend.ability import Able as Able
from dualml.backend.ability import Attending as Attending
from dualml.backend.ability import Carrying as Carrying
from dualml.backend.ability import Divisible as Divisible
from dualml.backend.ability import Grouping as Grouping
from dualml.backend.ability import Layout as Layout
from dualml.backend.ability import Metered as Metered
from dualml.backend.ability import Mixed as Mixed
from dualml.backend.ability import MixedStage as MixedStage
from dualml.backend.ability import NativeParallel as NativeParallel
from dualml.backend.ability import Observable as Observable
from dualml.backend.ability import Overlapping as Overlapping
from dualml.backend.ability import Pieces as Pieces
from dualml.backend.ability import PlacedStage as PlacedStage
from dualml.backend.ability import Placing as Placing
from dualml.backend.ability import Recomputing as Recomputing
from dualml.backend.ability import Regathering as Regathering
from dualml.backend.ability import RemoteCalls as RemoteCalls
from dualml.backend.ability import Replicable as Replicable
from dualml.backend.ability import Staging as Staging
from dualml.backend.ability import Weighable as Weighable
from dualml.backend.info import Adopted as Adopted
from dualml.backend.info import BackendInfo as BackendInfo
from dualml.backend.info import Launcher as Launcher
from dualml.backend.info import backends as backends
from dualml.backend.info import choose as choose
from dualml.backend.memory import Memory as Memory
from dualml.backend.recipe import Array as Array
from dualml.backend.recipe import Recipe as Recipe
from dualml.backend.stage import BlockAttention as BlockAttention
from dualml.backend.stage import Segment as Segment
from dualml.backend.stage import Stage as Stage
from dualml.backend.training import POSITIONS_AT_ONCE as POSITIONS_AT_ONCE
from dualml.backend.training import Arrays as Arrays
from dualml.backend.training import Backend as Backend
from dualml.backend.training import Trace as Trace
from dualml.backend.training import Training as Training
from dualml.backend.training import at_once as at_once
from dualml.backend.training import batch_digest as batch_digest
from dualml.backend.training import chunks as chunks
