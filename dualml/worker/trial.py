"""One trial inside its worker process: train, look at the chosen steps, and draw the envelope."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.aggregation import REPLICAS, SCHEMES
from dualml.backend import Backend, Recipe, Replicable, Training
from dualml.communicator import Communicator
from dualml.errors import UserError
from dualml.experiment.deals import deal_key
from dualml.experiment.plan import Plan
from dualml.experiment.samples import Samples
from dualml.store.checkpoint import (
    Progress,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from dualml.store.envelope import ENVELOPE
from dualml.store.records import Records, losses_of, read_records
from dualml.store.tensors import TRACE, WEIGHTS
from dualml.worker.capture import PROBE, after, before
from dualml.worker.draws import draw_envelope
from dualml.worker.evaluate import perplexity
from dualml.worker.group import Group
from dualml.worker.guards import (
    check_final,
    check_finite,
    check_loaded,
    check_losses,
    check_moved,
)
from dualml.worker.models import ModelCache
from dualml.worker.ranks import Alone
from dualml.worker.seen import Seen
from dualml.worker.split import SplitRanks, split_training

Arrays = dict[str, NDArray[Any]]
LOOKS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


class Trial:
    """One (arm, backend, seed), as one of its ranks sees it.

    Every rank does the same in the same order; rank 0 alone writes what is judged.

    Args:
        comm: the group of ranks, None where there is only this one.
        models: those of earlier trials of this process.
        emit: told of every stretch of work: ``emit(phase=…, done=…, total=…, loss=…)``.
        checkpoint_every: seconds of training between two checkpoints.
    """

    def __init__(
        self,
        plan: Plan,
        arm: str,
        seed: int,
        backend: Backend,
        samples: Samples,
        folder: Path,
        emit: Callable[..., None],
        checkpoint_every: float = 10.0,
        comm: Communicator | None = None,
        models: ModelCache | None = None,
    ) -> None:
        self.plan, self.arm_name, self.seed, self.backend = plan, arm, seed, backend
        self.arm = plan.experiment.arms[arm]
        self.samples, self.folder, self.emit = samples, folder, emit
        self.checkpoint_every = checkpoint_every
        self.schedule, self.feed = plan.schedule(self.arm, seed), plan.feed(self.arm, seed)
        self.initial, self.spec = plan.initial(seed, self.arm), plan.spec_of(self.arm)
        self.probe = self.feed.batch(1)[:PROBE]
        self.rule = self.arm.rule
        self.unit = "nat" if plan.experiment.loss == "cross_entropy" else "1"
        self.losses = np.zeros(self.schedule.updates)
        self.trace: Arrays = {}
        self.digests: dict[str, str] = {}
        self.looks: dict[str, float] = {}
        self.by_class: list[float | None] = [None] * samples.classes
        self.apart: dict[str, list[float]] = {}
        self.seen = Seen()
        self.ranks = self.assemble(comm, models or ModelCache())
        self.training = self.ranks.training
        self.restart(dict(self.initial))

    def assemble(self, comm: Communicator | None, models: ModelCache) -> Alone:
        """The model, and how the ranks work on it together."""
        key, backend, folder, arm = self.model_key(), self.backend, self.folder, self.arm
        if arm.split is not None and comm is not None:
            split = models.split(key, lambda: split_training(self, comm))
            return SplitRanks(backend, split, folder, self.feed, comm, arm, self.seed)
        own = models.training(key, self.make)
        if comm is None:
            return Alone(backend, own, folder, self.feed)
        pieces = models.pieces(key, self.spec.parameters(), arm.aggregation, comm)
        return Group(backend, own, pieces, folder, comm, arm, self.seed, self.feed)

    def model_key(self) -> str:
        """What decides the model's code: arms that agree here may use one model in turn."""
        arm, schedule = self.arm, self.arm.plan_schedule
        constant = schedule.kind == "constant" and not schedule.warmup
        length = 0 if constant else self.schedule.updates  # a list of rates ends with the trial
        rule = arm.plan_partition
        noise = deal_key(arm, self.seed) if rule is not None and rule.changes_features else ""
        own = arm.aggregation.strategy if arm.aggregation.strategy in SCHEMES else ""
        plan = self.plan.splits.get(self.arm_name)
        split = None if plan is None else (arm.split, arm.world_size, plan.cut)
        keeps_seed = self.spec.dropouts and (plan is None or plan.engine == "rpc")
        model = (self.spec.name, self.seed if keeps_seed else 0)
        return str((self.rule, schedule.describe(), arm.chunk, length, noise, own, split, model))

    def recipe(self) -> Recipe:
        """Not kept: of a partition by features it holds a training set of its own."""
        s = self.samples
        return self.plan.recipe(self.arm, self.seed, s.train_x, s.train_y)

    def make(self) -> Training:
        training = self.backend.training(self.recipe())
        if self.arm.aggregation.strategy == REPLICAS:
            training.ability(Replicable).replicas()
        return training

    def restart(self, weights: Arrays) -> None:
        fresh = self.rule.init({name: w.astype(np.float64) for name, w in weights.items()})
        self.training.load(weights, fresh, 0)

    def run(self) -> dict[str, Any]:
        """Train (from the last checkpoint, if there is one), draw, and return the summary."""
        check_loaded(self.arm_name, self.initial, self.training.weights())
        compile_s = self.warm_up()
        seconds = self.train()
        self.ranks.finish()
        sha256 = self.ranks.samples_sha256(self.seen)
        weights = self.training.weights()
        check_finite(self.arm_name, weights)
        if self.ranks.rank == 0:
            check_final(self.arm_name, self.rule, self.looks, float(self.losses[0]))
            WEIGHTS.write(self.folder, weights)
            TRACE.write(self.folder, self.trace)
        # float64's own rounding is far below what is judged; chance is no matter of rounding.
        if self.backend.dtype != "float64" and not self.ranks.free:
            draw_envelope(self)
        remove_checkpoint(self.folder, self.ranks.rank)
        if self.ranks.rank:
            return self.ranks.summary()
        updates, text = self.schedule.updates, self.samples.text
        return {
            **self.ranks.summary(),
            "train_s": seconds,
            "compile_s": compile_s,
            "updates": updates,
            "sample_gradients": self.feed.samples(updates),
            "samples_sha256": sha256,
            "final_loss": self.looks["train_loss"],
            "train_accuracy": self.looks["train_accuracy"],
            "test_loss": self.looks["test_loss"],
            "test_accuracy": self.looks["test_accuracy"],
            "class_accuracy": self.by_class,
            **({"test_perplexity": perplexity(self.looks["test_loss"])} if text else {}),
            "data": self.digests,
            **({"apart": self.apart} if self.apart else {}),
            "trace_steps": self.schedule.trace,
        }

    def warm_up(self) -> float:
        """Compile every batch shape before the clock runs; the seconds it took."""
        begin = time.perf_counter()
        for batch, step in self.ranks.warm_up(self.arm.chunk):
            self.training.step(batch, step)
            self.backend.synchronize()
            self.restart(dict(self.initial))  # every time: a list of rates ends with the trial
            self.emit(phase="compile", done=0, total=self.schedule.updates)
        return time.perf_counter() - begin

    def train(self) -> float:
        """The updates; the seconds they took."""
        updates = self.schedule.updates
        progress = self.resume()
        records = Records(self.folder, self.ranks.rank, progress.records)
        self.ranks.begin_training()
        marks = sorted(
            {
                *self.schedule.evaluate,
                *(t - 1 for t in self.schedule.trace),
                *self.schedule.trace,
                updates,
            }
        )
        step, seconds, stretch, saved = progress.step, progress.seconds, 1, progress.seconds
        try:
            if step == 0:
                self.look(records, 0, 0.0)
            while step < updates:
                if step + 1 in self.schedule.trace:
                    batch = self.ranks.batch(step + 1)
                    seen, digest = before(self.training, step + 1, batch, self.probe)
                    self.trace.update(seen)
                    self.digests[str(step + 1)] = digest
                stop = min(step + stretch, next(m for m in marks if m > step))
                spent, losses = self.stretch(step + 1, stop)
                seconds += spent
                self.losses[step:stop] = losses
                self.write_losses(records, step + 1, stop)
                check_losses(self.arm_name, self.rule, self.losses, step, stop)
                if step == 0:
                    check_moved(self.arm_name, self.rule, self.initial, self.training.weights())
                if stop in self.schedule.trace:
                    self.trace.update(after(self.training, stop))
                    if apart := self.ranks.apart():
                        self.apart[str(stop)] = apart
                if stop in self.schedule.evaluate:
                    self.look(records, stop, seconds)
                stretch = self.ranks.next_stretch(stretch, stop - step, spent)
                step = stop
                self.emit(phase="train", done=step, total=updates, loss=float(losses[-1]))
                looked = stop in self.schedule.evaluate
                due = self.ranks.checkpoint_due(looked, seconds - saved, self.checkpoint_every)
                if due and step < updates:
                    saved = seconds
                    self.save(step, seconds, records)
            self.save(step, seconds, records)
        finally:
            records.close()
        return seconds

    def save(self, step: int, seconds: float, records: Records) -> None:
        """Put everything needed to go on after ``step`` on disk."""
        seen = {str(rank): link for rank, link in self.seen.chains.items()}
        save_checkpoint(
            self.folder,
            self.ranks.rank,
            Progress(step, seconds, records.flush(), self.digests, seen),
            self.training.weights(),
            self.training.state(),
            self.trace,
        )

    def resume(self) -> Progress:
        """Go to the last checkpoint; to the start where there is none that can be read."""
        found = None
        try:
            found = load_checkpoint(self.folder, self.ranks.rank)
            if found is not None:
                self.recall(found[0])
        except UserError as error:
            print(f"{error}; starting again from update 1", flush=True)
            found = None
        if self.ranks.agree(found[0].step if found else 0) and found is not None:
            progress, weights, state, trace = found
            self.training.load(weights, state, progress.step)
            self.trace = trace
            return progress
        self.losses[:] = 0
        self.looks, self.digests, self.seen = {}, {}, Seen()
        self.restart(dict(self.initial))
        ENVELOPE.remove(self.folder)
        return Progress()

    def recall(self, progress: Progress) -> None:
        """Losses and looks made before the checkpoint, from the records it covers."""
        rank, step = self.ranks.rank, progress.step
        records = read_records(self.folder, rank, progress.records)
        self.losses[:step] = losses_of(self.folder, rank, records, step)
        last = {metric: float(curve.value[-1]) for metric, curve in records.items()}
        self.looks = {metric: last[metric] for metric in LOOKS if metric in last}
        self.by_class = [last.get(f"class_accuracy/{n}") for n in range(len(self.by_class))]
        self.digests = dict(progress.digests)
        self.seen = Seen({int(rank): link for rank, link in progress.seen.items()})

    def stretch(self, first: int, last: int) -> tuple[float, NDArray[np.float64]]:
        """Updates ``first`` … ``last`` without a synchronisation in between."""
        self.backend.synchronize()
        begin = time.perf_counter()
        lazy, batches = [], []
        for step in range(first, last + 1):
            batches.append(self.ranks.batch(step))
            lazy.append(self.training.step(batches[-1], step))
        losses = self.ranks.read(lazy)
        self.backend.synchronize()
        spent = time.perf_counter() - begin
        for step, batch in enumerate(batches, start=first):
            for rank, samples in self.ranks.trained_on(batch, step):
                self.seen.add(rank, samples)
        return spent, losses

    def write_losses(self, records: Records, first: int, last: int) -> None:
        n, more = len(self.samples.train_y), self.ranks.measured()
        for step in range(first, last + 1):
            done = self.feed.samples(step)
            records.write("loss", step, float(self.losses[step - 1]), self.unit, epochs=done / n)
            for _, metric, value in (m for m in more if m[0] == step):
                records.write(metric, step, value, "1")

    def look(self, records: Records, step: int, seconds: float) -> None:
        """Evaluate: training loss and accuracy on the monitor, then everything on the test set."""
        s = self.samples
        with self.ranks.evaluating():
            everything = np.arange(len(s.test_y))
            train = self.ranks.score(s.train_x, s.train_y, s.monitor, s.classes)
            test = self.ranks.score(s.test_x, s.test_y, everything, s.classes)
        if train is None or test is None or self.ranks.rank:
            return
        found = (train.loss, train.accuracy, test.loss, test.accuracy)
        done = self.feed.samples(step)
        for metric, value in zip(LOOKS, found, strict=True):
            unit = self.unit if metric.endswith("loss") else "1"
            records.write(metric, step, value, unit, epochs=done / len(s.train_y), seconds=seconds)
            self.looks[metric] = value
        if s.text:
            for part, loss in (("train", train.loss), ("test", test.loss)):
                more = {"epochs": done / len(s.train_y), "seconds": seconds}
                records.write(f"{part}_perplexity", step, perplexity(loss), "1", **more)
        self.by_class = [] if s.text else test.by_class
        for number, accuracy in enumerate(self.by_class):
            if accuracy is not None:
                records.write("class_accuracy", step, accuracy, "1", **{"class": number})
        records.flush()
