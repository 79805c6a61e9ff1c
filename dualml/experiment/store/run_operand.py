"""One operand of a comparison of two runs: a run folder, or a baseline of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError
from dualml.experiment.fingerprint import arrays_digest, canonical, sha256
from dualml.experiment.schema import Experiment
from dualml.experiment.store.baseline import BASELINE, FOLDS, folded_shapes
from dualml.experiment.store.manifest import RUN, Key, RunRecord, TrialRecord, check_run, read_run
from dualml.experiment.store.plan import PLAN, plan_folder, restore_plan
from dualml.experiment.store.plan_record import PlanRecord
from dualml.experiment.store.trajectory import Trajectory, read_trajectory
from dualml.experiment.store.trial import trial_folder


@dataclass(frozen=True)
class RunOperand:
    """The parts of a run that are compared.

    Attributes:
        folder: folder as the user named it.
        starts: initial weight of the plan → its SHA-256.
        folded: whether it is a baseline, whose tensors are folded.
    """

    folder: Path
    run: RunRecord
    plan: PlanRecord
    experiment: Experiment
    starts: Mapping[str, str]
    folded: bool

    @property
    def trials(self) -> Mapping[Key, TrialRecord]:
        """Key → record of each trial."""
        return self.run.by_key()

    def spec(self, arm: str) -> ModelSpec:
        """Return the model that the arm of this name trains."""
        return self.plan.models.get(self.experiment.arms[arm].variant, self.plan.model)

    def initial_sha256(self, key: Key) -> str:
        """Return one SHA-256 over the initial weights of the trial ``key``: over their names and
        the SHA-256 of each."""
        arm, _, seed = key
        model = self.experiment.arms[arm].variant
        place = f"seed{seed}/{model}/" if model in self.plan.models else f"seed{seed}/"
        names = self.spec(arm).tensors()
        return sha256(canonical({name: self.starts.get(place + name, "") for name in names}))

    def trajectory(self, key: Key) -> Trajectory:
        """Read a trial's trajectory; raise `UserError` if a file is missing or damaged."""
        shapes = self.spec(key[0]).tensors()
        shapes = folded_shapes(shapes) if self.folded else shapes
        return read_trajectory(trial_folder(self.folder, key), key[1], shapes)


def read_run_operand(folder: Path) -> RunOperand:
    """Read a run folder or a baseline.

    Raises:
        PlanChanged: the plan of a run is not the one that was frozen.
        UserError: the folder is neither, damaged, or of another version.
    """
    run, plan = read_run(folder), PLAN.read(plan_folder(folder))
    experiment = run.to_experiment(folder)
    if (baseline := BASELINE.read_if_present(folder)) is None:
        weights = restore_plan(plan_folder(folder), run.plan_hash).weights
        starts = {name: arrays_digest({"": array}) for name, array in weights.items()}
        return RunOperand(folder, run, plan, experiment, starts, folded=False)
    if baseline.folds != FOLDS:
        raise UserError(
            f"{folder}: tensors folded into {baseline.folds} numbers, this version folds into "
            f"{FOLDS}; make the baseline again with `dualml baseline`"
        )
    return RunOperand(folder, run, plan, experiment, baseline.starts, folded=True)


def are_run_operands(a: Path, b: Path) -> bool:
    """Return whether both of two folders have a ``run.json``, as a run folder or a baseline has;
    False if neither does.

    Raises:
        UserError: only one of them is.
    """
    others = [folder for folder in (a, b) if not (folder / RUN.name).is_file()]
    if len(others) == 1:
        check_run(others[0])
    return not others
