"""Interface between the framework-neutral core and a framework.

`BackendInfo` holds what the parent process knows of a backend. `Backend` and `Training` are what
every framework implements in a worker process. The classes in `capability` are optional features
that only some of them implement.
"""

from dualml.backend.capability import ActivationCapture as ActivationCapture
from dualml.backend.capability import ActivationRecomputation as ActivationRecomputation
from dualml.backend.capability import ActivationResharding as ActivationResharding
from dualml.backend.capability import BlockwiseAttention as BlockwiseAttention
from dualml.backend.capability import Capability as Capability
from dualml.backend.capability import CommOverlap as CommOverlap
from dualml.backend.capability import DevicePlacement as DevicePlacement
from dualml.backend.capability import DeviceReplication as DeviceReplication
from dualml.backend.capability import FrameworkDataParallel as FrameworkDataParallel
from dualml.backend.capability import GradientAccess as GradientAccess
from dualml.backend.capability import GradientBuckets as GradientBuckets
from dualml.backend.capability import Layout as Layout
from dualml.backend.capability import MemoryReport as MemoryReport
from dualml.backend.capability import MixedPrecision as MixedPrecision
from dualml.backend.capability import MixedPrecisionStage as MixedPrecisionStage
from dualml.backend.capability import PeakMemory as PeakMemory
from dualml.backend.capability import PipelineStages as PipelineStages
from dualml.backend.capability import PlacedStage as PlacedStage
from dualml.backend.capability import ProcessGroups as ProcessGroups
from dualml.backend.capability import RemoteProcedureCalls as RemoteProcedureCalls
from dualml.backend.capability import StateCarryover as StateCarryover
from dualml.backend.capability import SupportsCapabilities as SupportsCapabilities
from dualml.backend.info import BackendInfo as BackendInfo
from dualml.backend.info import ExternalLaunch as ExternalLaunch
from dualml.backend.info import Launcher as Launcher
from dualml.backend.info import backend_names as backend_names
from dualml.backend.info import backends as backends
from dualml.backend.info import select_backends as select_backends
from dualml.backend.memory import MemoryUsage as MemoryUsage
from dualml.backend.stage import BlockAttention as BlockAttention
from dualml.backend.stage import Segment as Segment
from dualml.backend.stage import Stage as Stage
from dualml.backend.training import POSITIONS_AT_ONCE as POSITIONS_AT_ONCE
from dualml.backend.training import Arrays as Arrays
from dualml.backend.training import Backend as Backend
from dualml.backend.training import BatchTrace as BatchTrace
from dualml.backend.training import Training as Training
from dualml.backend.training import batch_digest as batch_digest
from dualml.backend.training import eval_batch_size as eval_batch_size
from dualml.backend.training import split_into_chunks as split_into_chunks
from dualml.backend.training_spec import Array as Array
from dualml.backend.training_spec import TrainingSpec as TrainingSpec
from dualml.common.former_members import former_names

__getattr__ = former_names(__name__, {"Recipe": "TrainingSpec"})
