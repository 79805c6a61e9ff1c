"""One arm of an experiment file: one configuration to train or to measure."""

from dualml.experiment.arm.base import RARE as RARE
from dualml.experiment.arm.base import Arm as Arm
from dualml.experiment.arm.infer import infer_kind as infer_kind
from dualml.experiment.arm.kinds import KINDS as KINDS
from dualml.experiment.arm.kinds import AnyArm as AnyArm
from dualml.experiment.arm.kinds import make_arm as make_arm
from dualml.experiment.arm.settings import MAX_RANKS as MAX_RANKS
from dualml.experiment.arm.settings import MAX_UPDATES as MAX_UPDATES
from dualml.experiment.arm.settings import Seed as Seed
from dualml.experiment.arm.settings import StragglerSettings as StragglerSettings
