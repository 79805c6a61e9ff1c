"""Interface between the framework-neutral core and a framework.

`BackendInfo` holds what the parent process knows of a backend. `Backend` and `Training` are what
every framework implements in a worker process. The classes in `capability` are optional features
that only some of them implement.
"""

from dualml.backend.ability import Capability as Capability
from dualml.backend.ability import SupportsCapabilities as SupportsCapabilities
from dualml.backend.ability import BlockwiseAttention as BlockwiseAttention
from dualml.backend.ability import StateCarryover as StateCarryover
from dualml.backend.ability import GradientAccess as GradientAccess
from dualml.backend.ability import ProcessGroups as ProcessGroups
from dualml.backend.ability import Layout as Layout
from dualml.backend.ability import PeakMemory as PeakMemory
from dualml.backend.ability import MixedPrecision as MixedPrecision
from dualml.backend.ability import MixedPrecisionStage as MixedPrecisionStage
from dualml.backend.ability import FrameworkDataParallel as FrameworkDataParallel
from dualml.backend.ability import ActivationCapture as ActivationCapture
from dualml.backend.ability import CommOverlap as CommOverlap
from dualml.backend.ability import GradientBuckets as GradientBuckets
from dualml.backend.ability import PlacedStage as PlacedStage
from dualml.backend.ability import DevicePlacement as DevicePlacement
from dualml.backend.ability import ActivationRecomputation as ActivationRecomputation
from dualml.backend.ability import ActivationResharding as ActivationResharding
from dualml.backend.ability import RemoteProcedureCalls as RemoteProcedureCalls
from dualml.backend.ability import DeviceReplication as DeviceReplication
from dualml.backend.ability import PipelineStages as PipelineStages
from dualml.backend.ability import MemoryReport as MemoryReport
from dualml.backend.info import ExternalLaunch as ExternalLaunch
from dualml.backend.info import BackendInfo as BackendInfo
from dualml.backend.info import Launcher as Launcher
from dualml.backend.info import backends as backends
from dualml.backend.info import select_backends as select_backends
from dualml.backend.memory import MemoryUsage as MemoryUsage
from dualml.backend.recipe import Array as Array
from dualml.backend.recipe import TrainingSpec as TrainingSpec
from dualml.backend.stage import BlockAttention as BlockAttention
from dualml.backend.stage import Segment as Segment
from dualml.backend.stage import Stage as Stage
from dualml.backend.training import POSITIONS_AT_ONCE as POSITIONS_AT_ONCE
from dualml.backend.training import Arrays as Arrays
from dualml.backend.training import Backend as Backend
from dualml.backend.training import BatchTrace as BatchTrace
from dualml.backend.training import Training as Training
from dualml.backend.training import eval_batch_size as eval_batch_size
from dualml.backend.training import batch_digest as batch_digest
from dualml.backend.training import split_into_chunks as split_into_chunks
