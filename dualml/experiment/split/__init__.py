"""The ``split`` table of an arm, and the split plan made from it."""

from dualml.experiment.split.base import MAX_SPLIT_NUMBER as MAX_SPLIT_NUMBER
from dualml.experiment.split.base import TIMED as TIMED
from dualml.experiment.split.base import Split as Split
from dualml.experiment.split.base import reference_times as reference_times
from dualml.experiment.split.kinds import AnySplit as AnySplit
from dualml.experiment.split.kinds import AsynchronousSplit as AsynchronousSplit
from dualml.experiment.split.kinds import DevicesSplit as DevicesSplit
from dualml.experiment.split.kinds import MessagesSplit as MessagesSplit
from dualml.experiment.split.kinds import RpcSplit as RpcSplit
