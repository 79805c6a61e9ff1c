"""One trial inside its worker process: train, trace the chosen steps, and draw the envelope."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.precision import SLOT
from dualml.common.array_types import Arrays
from dualml.common.confusion import ClassificationContent, classification_report
from dualml.common.errors import UserError
from dualml.experiment.sample_digest import SampleDigest
from dualml.experiment.store.checkpoint import (
    Progress,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from dualml.experiment.store.envelope import ENVELOPE
from dualml.experiment.store.records import RecordWriter, read_records, update_losses
from dualml.experiment.store.tensors import TRACE, WEIGHTS
from dualml.runner.worker.agreement import RankConsistencyCheck
from dualml.runner.worker.best import BestCheckpoint
from dualml.runner.worker.capture import trace_post_update, trace_pre_update
from dualml.runner.worker.draws import draw_envelope
from dualml.runner.worker.evaluate import Score, perplexity
from dualml.runner.worker.guards import (
    check_final,
    check_finite,
    check_loaded,
    check_losses,
    check_steps_applied,
    check_weights_changed,
)
from dualml.runner.worker.memory import measure_memory
from dualml.runner.worker.ranks import MultiRank
from dualml.runner.worker.remote import upload_outputs
from dualml.runner.worker.setup import TrialSetup
from dualml.runner.worker.step_timer import StepTimer

#: Metrics of an evaluation.
EVALUATION_METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


class TrialRunner(TrialSetup):
    """One (arm, backend, seed) as one of its ranks runs it; takes the arguments of `TrialSetup`.

    Every rank does the same in the same order; only rank 0 writes what is judged.
    """

    def __init__(self, *setup: Any, **more: Any) -> None:
        super().__init__(*setup, **more)
        self.losses = np.zeros(self.schedule.updates)
        self.trace: Arrays = {}
        self.digests: dict[str, str] = {}
        self.evaluations: dict[str, float] = {}
        self.by_class: list[float | None] = [None] * self.samples.classes
        self.confusion: list[list[int]] = []
        self.best = BestCheckpoint(self.folder)
        self.replica_divergence: dict[str, list[float]] = {}
        self.sample_digest = SampleDigest()
        #: Whether the number of ranks has changed; then the sample digests are incomplete.
        self.resized = False
        self.step_timer = StepTimer()
        #: Checks that several ranks train one model; made when training begins.
        self.consistency_check: RankConsistencyCheck | None = None
        self.memory: list[dict[str, int | None]] = []
        #: Seconds by activity.
        self.spent = dict.fromkeys(("compile", "train", "evaluate", "trace", "draws", "write"), 0.0)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the seconds of the block to ``spent[what]``, unless it raises."""
        begin = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - begin

    def finish(self, seconds: float) -> dict[str, Any]:
        """Return the summary of a training whose updates took ``seconds``; on ranks other than 0
        only the fields about the ranks. All ranks call it.

        Before that it checks losses, weights and ranks, measures the rounding envelope where
        rounding matters (which leaves the model perturbed), and removes this rank's checkpoint;
        rank 0 writes weights and trace.

        Raises:
            TrialError: a check fails.
        """
        agreement = self.consistency_check.finish(self.step_timer) if self.consistency_check else {}
        moved = self.offload_stats()
        self.ranks.finish()
        samples: list[dict[str, Any]] = []
        sha256 = ""
        if not self.resized:
            samples, sha256 = self.ranks.describe_samples(self.sample_digest, self.schedule.updates)
        pace = self.step_timer.summary(self.ranks)
        weights, scaling = self.training.weights(), self.loss_scale_stats()
        if scaling:
            check_steps_applied(self.arm_name, self.schedule.updates, **scaling)
        check_finite(self.arm_name, weights)
        if self.ranks.rank == 0:
            check_final(self.arm_name, self.rule, self.evaluations, float(self.losses[0]))
            with self.timed("write"):
                WEIGHTS.write(self.folder, weights)
                TRACE.write(self.folder, self.trace)
        # float64's rounding is far below the tolerances; nondeterminism is not a rounding effect.
        rounds = self.backend.dtype != "float64" or self.arm.plan_precision.is_low
        # A method is compared with the same arm without one, which has perturbed runs.
        if rounds and not self.trainer.nondeterministic and not self.arm.method:
            with self.timed("draws"):
                draw_envelope(self, self.losses, self.trace)
        remove_checkpoint(self.folder, self.ranks.rank)
        if self.ranks.rank:
            return self.ranks.summary()
        updates, text = self.schedule.updates, self.samples.is_text
        summary = self.ranks.summary()
        if self.precision_policy:
            precision = {"precision": str(self.precision_policy)}
            summary["how"] = {**summary.get("how", {}), **precision}
        optional = {
            "confusion": self.confusion,
            "classification": self.confusion and self.classification(),
            "best": self.best.facts,
            "test_perplexity": text and perplexity(self.evaluations["test_loss"]),
            "loss_scale": scaling,
            "apart": self.replica_divergence,
            "agreement": agreement,
            "device_memory": self.memory,
            "offload": moved,
        }
        return {
            **summary,
            "train_s": seconds,
            "clock": self.backend.clock,
            "compile_s": self.spent["compile"],
            "spent": self.spent,
            "updates": updates,
            "sample_gradients": self.feed.count_sample_gradients(updates),
            "samples_sha256": sha256,
            "samples": samples,
            **pace,
            "final_loss": self.evaluations["train_loss"],
            "train_accuracy": self.evaluations["train_accuracy"],
            "test_loss": self.evaluations["test_loss"],
            "test_accuracy": self.evaluations["test_accuracy"],
            "class_accuracy": self.by_class,
            "data": self.digests,
            "trace_steps": self.schedule.trace,
            **{key: value for key, value in optional.items() if value},
        }

    def offload_stats(self) -> list[dict[str, int | None]]:
        """Return, one dict per rank, the bytes kept outside of the device and the bytes moved
        (`OffloadTraffic`); empty where nothing is offloaded. All ranks call it."""
        if self.offloaded_model is None:
            return []
        host, disk = self.offloaded_model.offloaded_bytes()
        return self.ranks.gather_from_ranks(
            {"host": host, "disk": disk, **asdict(self.offloaded_model.traffic())}
        )

    def loss_scale_stats(self) -> dict[str, float]:
        """Return the current loss scale (``last``) and the number of ``skipped`` updates; empty
        without loss scaling. All ranks call it, as the state of a shared model is gathered."""
        own = self.trainer.state().get(SLOT, {})
        return {"last": float(own["scale"]), "skipped": int(own["skipped"])} if own else {}

    def warm_up(self) -> None:
        """Check the loaded weights, then compile every batch shape before the clock starts, by
        updates that are undone, and measure the memory of an update. All ranks call it;
        `TrialError` if the weights are not those of the plan."""
        check_loaded(self.arm_name, self.initial, self.training.weights())
        begin = time.perf_counter()
        updates = self.ranks.warm_up(self.arm.chunk, self.schedule.updates)
        numbers: dict[str, int | None] = {}
        for number, (batch, step) in enumerate(updates, start=1):
            self.trainer.run_steps([batch], step)
            self.backend.synchronize()
            if number == len(updates):
                numbers = measure_memory(self, *updates[0])
            self.restart(dict(self.initial))  # every time: a list of rates ends with the trial
            self.emit(phase="compile", done=0, total=self.schedule.updates)
        self.memory = self.ranks.gather_from_ranks(numbers) if numbers else []
        self.spent["compile"] += time.perf_counter() - begin

    def train(self) -> float:
        """Make all updates from the last checkpoint on, if there is one, with their checks, traces,
        evaluations and checkpoints; return the seconds that the updates alone took, with those
        before a resumption. All ranks call it.

        Raises:
            TrialError: a check fails, such as a loss that diverges.
        """
        updates = self.schedule.updates
        progress = self.resume()
        records = RecordWriter(self.folder, self.ranks.rank, progress.records)
        self.trainer.begin_training()
        agreement = self.consistency_check = self.make_consistency_check(progress)
        marks = sorted(
            {
                *self.schedule.evaluate,
                *(t - 1 for t in self.schedule.trace),
                *self.schedule.trace,
                *(agreement.steps if agreement else ()),
                updates,
            }
        )
        step, seconds, stretch, saved = progress.step, progress.seconds, 1, progress.seconds
        moved = step > self.loss_scale_stats().get("skipped", 0)
        try:
            if step == 0:
                self.evaluate(records, 0, 0.0)
            while step < updates:
                if step + 1 in self.schedule.trace:
                    with self.timed("trace"):
                        batch = self.ranks.batch(step + 1)
                        seen, digest = trace_pre_update(self.trainer, step + 1, batch, self.probe)
                    self.trace.update(seen)
                    self.digests[str(step + 1)] = digest
                stop = min(step + stretch, next(m for m in marks if m > step))
                spent, losses = self.run_steps(step + 1, stop)
                seconds += spent
                self.spent["train"] += spent
                self.losses[step:stop] = losses
                self.write_losses(records, step + 1, stop)
                check_losses(self.arm_name, self.rule, self.losses, step, stop)
                if not moved and stop > self.loss_scale_stats().get("skipped", 0):
                    now, moved = self.training.trainable_weights(), True
                    check_weights_changed(self.arm_name, self.rule, self.initial, now, stop)
                if agreement is not None:
                    with self.timed("trace"):
                        agreement.compare_weights(stop)
                if stop in self.schedule.trace:
                    with self.timed("trace"):
                        self.trace.update(trace_post_update(self.trainer, stop))
                    if apart := self.trainer.replica_divergence():
                        self.replica_divergence[str(stop)] = apart
                if stop in self.schedule.evaluate:
                    self.evaluate(records, stop, seconds)
                stretch = self.ranks.next_window(stretch, stop - step, spent)
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

    def make_consistency_check(self, progress: Progress) -> RankConsistencyCheck | None:
        """Make the checks that the ranks train one model, for the updates after ``progress``; None
        for a single rank. All ranks call it, as it measures their traffic."""
        if not isinstance(self.ranks, MultiRank) or self.ranks.size == 1:
            return None
        return RankConsistencyCheck(
            self.ranks,
            self.arm_name,
            self.arm.combining_key,
            self.spec.parameters(),
            progress.step + 1,
            self.schedule.updates,
            progress.agreement,
        )

    def save(self, step: int, seconds: float, records: RecordWriter) -> None:
        """Write this rank's checkpoint, from which training can resume after ``step``, and upload
        it where the rank does not see the run folder. All ranks call it."""
        seen = {str(rank): link for rank, link in self.sample_digest.rank_digests.items()}
        counts = {str(rank): n for rank, n in self.sample_digest.counts.items()}
        with self.timed("write"):
            self.best.write()
            known = (self.digests, seen, self.confusion, self.best.facts, self.replica_divergence)
            checks = self.consistency_check.checks if self.consistency_check else []
            save_checkpoint(
                self.folder,
                self.ranks.rank,
                Progress(step, seconds, records.flush(), *known, checks, counts),
                self.training.weights(),
                self.trainer.state(),
                self.trace,
            )
            upload_outputs(self.folder)

    def resume(self) -> Progress:
        """Load the last checkpoint and return its progress. Where this rank can read none, or the
        ranks' steps differ, reset the trial, remove its best weights and its envelope, and return
        the progress of a new one. All ranks call it."""
        checkpoint = None
        try:
            checkpoint = load_checkpoint(self.folder, self.ranks.rank)
            if checkpoint is not None:
                self.restore_progress(checkpoint[0])
        except UserError as error:
            print(f"{error}; starting again from update 1", flush=True)
            checkpoint = None
        if self.ranks.all_agree(checkpoint[0].step if checkpoint else 0) and checkpoint is not None:
            progress, weights, state, trace = checkpoint
            self.trainer.load(weights, state, progress.step)
            self.trace = trace
            return progress
        self.losses[:] = 0
        self.evaluations, self.digests, self.replica_divergence = {}, {}, {}
        self.sample_digest = SampleDigest()
        if self.ranks.rank == 0:
            self.best.reset()
        self.restart(dict(self.initial))
        ENVELOPE.remove(self.folder)
        return Progress()

    def restore_progress(self, progress: Progress) -> None:
        """Restore what was recorded before the checkpoint (losses, evaluations, digests), from it
        and from the records that it covers; `UserError` if they do not fit. No weights."""
        rank, step = self.ranks.rank, progress.step
        self.best.restore(progress.best)
        records = read_records(self.folder, rank, progress.records)
        self.losses[:step] = update_losses(self.folder, rank, records, step)
        last = {metric: float(curve.value[-1]) for metric, curve in records.items()}
        self.evaluations = {metric: last[metric] for metric in EVALUATION_METRICS if metric in last}
        self.by_class = [last.get(f"class_accuracy/{n}") for n in range(len(self.by_class))]
        self.confusion = progress.confusion
        self.digests, self.replica_divergence = dict(progress.digests), dict(progress.apart)
        counts = {int(rank): n for rank, n in progress.counts.items()}
        self.sample_digest = SampleDigest(
            {int(rank): link for rank, link in progress.seen.items()}, counts
        )

    def run_steps(self, first: int, last: int) -> tuple[float, NDArray[np.float64]]:
        """Make the updates ``first`` … ``last`` without a synchronisation in between, and note
        their samples; return the seconds they took and the loss of each. All ranks call it."""
        sent, elapsed = self.ranks.sent_bytes(), self.backend.stopwatch()
        batches = [self.ranks.batch(step) for step in range(first, last + 1)]
        losses = self.trainer.mean_losses(self.trainer.run_steps(batches, first))
        spent = elapsed()
        self.step_timer.add(len(batches), spent, sent, self.ranks.sent_bytes())
        for step, batch in enumerate(batches, start=first):
            for rank, samples in self.ranks.trained_samples(batch, step):
                self.sample_digest.add(rank, samples)
        return spent, losses

    def write_losses(self, records: RecordWriter, first: int, last: int) -> None:
        """Write the losses of the updates ``first`` … ``last`` to the records, and what the trainer
        measured in them."""
        n, more = len(self.samples.train_y), self.trainer.pop_measurements()
        with self.timed("write"):
            for step in range(first, last + 1):
                done, loss = self.feed.count_sample_gradients(step), float(self.losses[step - 1])
                records.write("loss", step, loss, self.unit, epochs=done / n)
                for _, metric, value in (m for m in more if m[0] == step):
                    records.write(metric, step, value, "1")

    def evaluate(self, records: RecordWriter, step: int, seconds: float) -> None:
        """Evaluate the model after update ``step``: loss and accuracy on the monitored training
        samples, on the test set, and on the validation set where there is one. All ranks call it;
        only rank 0 records the result."""
        s = self.samples
        with self.timed("evaluate"), self.trainer.evaluation_mode():
            everything = np.arange(len(s.test_y))
            train = self.ranks.score(s.train_x, s.train_y, s.monitor, s.classes)
            test = self.ranks.score(s.test_x, s.test_y, everything, s.classes)
            validation = self.validate(step, test)
        if train is None or test is None or self.ranks.rank:
            return
        values = (train.loss, train.accuracy, test.loss, test.accuracy)
        done = self.feed.count_sample_gradients(step)
        looked = dict(zip(EVALUATION_METRICS, values, strict=True))
        self.evaluations |= looked
        if validation is not None:
            looked |= {
                "validation_loss": validation.loss,
                "validation_accuracy": validation.accuracy,
            }
        for metric, value in looked.items():
            unit = self.unit if metric.endswith("loss") else "1"
            records.write(metric, step, value, unit, epochs=done / len(s.train_y), seconds=seconds)
        if s.is_text:
            for part, loss in (("train", train.loss), ("test", test.loss)):
                more = {"epochs": done / len(s.train_y), "seconds": seconds}
                records.write(f"{part}_perplexity", step, perplexity(loss), "1", **more)
        self.by_class = [] if s.is_text else test.by_class
        if s.labelled and test.confusion is not None:
            self.confusion = test.confusion.tolist()
        for number, accuracy in enumerate(self.by_class):
            if accuracy is not None:
                records.write("class_accuracy", step, accuracy, "1", **{"class": number})
        records.flush()

    def classification(self) -> ClassificationContent:
        """Return the classification report on the test set, of the best weights where they are
        kept, else of the final ones."""
        confusion = self.best.facts.get("confusion") or self.confusion
        names = self.plan.data["classes"]
        return classification_report(confusion, names)

    def validate(self, step: int, test: Score | None) -> Score | None:
        """Evaluate on the validation set and return the score, None where there is no such set or
        the rank does not take part; rank 0 keeps the weights with the smallest loss, as they are
        evaluated. All ranks call it."""
        if (samples := self.samples.validation) is None:
            return None
        index = np.arange(len(samples[1]))
        score = self.ranks.score(*samples, index, self.samples.classes)
        decides = score is not None and self.ranks.rank == 0 and self.best.is_improved_by(score)
        if self.ranks.share_decision(decides):
            weights = self.training.weights()  # of all ranks, which may each hold a part
            if score is not None and test is not None and self.ranks.rank == 0:
                self.best.update(step, score, test, weights)
        return score
