"""A user's PyTorch model, run again with alterations: see `dualml.parity.causes.search`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.models.trace import Trace
from dualml_torch.causes.altered import Altered
from dualml_torch.causes.replay import Recording, Replay, Value
from dualml_torch.causes.update import Update, settings_of
from dualml_torch.record import Recorder


class Explored(Recorder):
    """A recorder under which some operations and updates are altered."""

    changes: Sequence[Alteration] = ()
    recording: Recording | None = None
    given: Sequence[Any] = ()

    def watch(self) -> Altered | None:
        known = dict(self.model.named_parameters())
        if self.tape is not None:
            self.recording = Recording(self.tape, self.changes, known)
            return self.recording
        if not self.changes:
            return None
        # A later step: the calls are numbered, their numbers are not kept.
        tape = self.tape_of_step()
        for i, one in enumerate(self.given):
            tape.known(one, f"input:{i}")
        tape.array = nothing
        return Altered(tape, self.changes, known)


def nothing(tensor: torch.Tensor) -> NDArray[Any]:
    return np.zeros(0, np.float32)


class Explorer:
    """Runs the steps of a comparison again.

    Args:
        step: makes one step, as `dualml_torch.models.step` gives it.
        inputs: of each step.
    """

    def __init__(
        self,
        recorder: Explored,
        make: Callable[[Explored], Callable[..., None]],
        inputs: Sequence[Any],
        steps: int,
    ) -> None:
        self.recorder, self.make, self.inputs, self.steps = recorder, make, inputs, steps
        self.start = recorder.snapshot()
        self.replay: Replay | None = None
        self.trained = [n for n, p in recorder.model.named_parameters() if p.requires_grad]

    def run(self, changes: Sequence[Alteration]) -> Trace:
        """All steps with these alterations, from the initial weights.

        An alteration that cannot be done is in ``raised`` of the trace.
        """
        recorder = self.recorder
        recorder.restore(self.start)
        recorder.given = self.inputs
        recorder.changes = [c for c in changes if c.action not in ("optimizer", "freeze")]
        frozen = {name for c in changes if c.action == "freeze" for name in c.value}
        for name, p in recorder.model.named_parameters():
            if name in self.trained:
                p.requires_grad_(name not in frozen)
        recorder.trace = Trace(
            recorder.framework, recorder.trace.environment, recorder.tensors(), recorder.modules()
        )
        with self.updating([c for c in changes if c.action == "optimizer"]):
            step = self.make(recorder)
            for number in range(self.steps):
                try:
                    with recorder.step(*self.inputs):
                        step(*self.inputs)
                except Exception:
                    if recorder.trace.raised is None:
                        raise
                if number == 0 and recorder.recording is not None:
                    self.replay = recorder.recording.replay
                if recorder.trace.raised:
                    break
        return recorder.trace

    @contextlib.contextmanager
    def updating(self, changes: Sequence[Alteration]) -> Iterator[None]:
        optimizer = self.recorder.optimizer
        if not changes or optimizer is None:
            yield
            return
        names = {id(p): name for name, p in self.recorder.model.named_parameters()}
        update, original = Update(optimizer, changes, names), optimizer.step
        for change in changes:
            if str(change.argument).startswith("own:"):  # put back with all that it remembers
                setattr(optimizer, str(change.argument).removeprefix("own:"), change.value)

        def altered(*args: Any, **kwargs: Any) -> None:
            self.recorder.before_update(optimizer, (), {})
            update.step(original)

        optimizer.step = altered
        try:
            yield
        finally:
            del optimizer.step

    def settings(self) -> list[dict[str, Any]]:
        names = {id(p): name for name, p in self.recorder.model.named_parameters()}
        return settings_of(self.recorder.optimizer, names)

    @torch.no_grad()
    def probe(self, change: Alteration, calls: int) -> Iterator[tuple[str, NDArray[Any]]]:
        """What an alteration makes of its call and of the calls behind it, with their names.

        Args:
            calls: how many calls behind it are made again at most.
        """
        replay = self.replay
        assert replay is not None
        overlay: dict[str, Value] = {}
        if change.action == "swap":
            yield from self.swapped(change, overlay)
        else:
            first = change.sites[0]
            if change.action in ("parameters", "borrow"):
                overlay |= self.exchanged(change)
            alone = change.action in ("parameters", "borrow")
            yield from self.put(first, overlay, [] if alone else [change])
        done = 0
        for number in range(change.sites[0] + 1, len(replay.calls)):
            inputs = self.recorder.trace.operations[number].inputs
            again = number in change.sites and change.action not in ("parameters", "borrow")
            if not (again or any(name in overlay for name in inputs)) or (
                change.action == "swap" and number == int(change.value)
            ):
                continue
            yield from self.put(number, overlay, [change] if again else [])
            done += 1
            if done >= calls:
                return

    def exchanged(self, change: Alteration) -> dict[str, Value]:
        assert self.replay is not None
        values = self.replay.values
        if change.action == "parameters":
            x, y = (str(change.old), str(change.value))
            return {x: values[y], y: values[x]} if y in values else {}
        own, other = f"parameter:{change.argument}", f"parameter:{change.value}"
        # As they were before the first update.
        known = {
            name: torch.from_numpy(array) for name, array in self.recorder.trace.initial().items()
        }
        rows = {}
        for name in known:
            there = other + f"parameter:{name}".removeprefix(own)
            if (
                f"parameter:{name}".startswith(f"{own}.")
                and there.removeprefix("parameter:") in known
            ):
                rows[f"parameter:{name}"] = known[there.removeprefix("parameter:")]
        return rows

    def swapped(
        self, change: Alteration, overlay: dict[str, Value]
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        first, second = change.sites[0], int(change.value)
        replay = self.replay
        assert replay is not None
        given = self.recorder.trace.operations[first].inputs[0]
        name = f"op:{first}"
        value = replay.run(second, {name: replay.values[given]}, [])[0]
        last = replay.run(first, {given: value}, [])[0]
        overlay[f"op:{second}"] = last
        yield f"op:{second}", self.recorder.array(last)

    def put(
        self, number: int, overlay: dict[str, Value], changes: Sequence[Alteration]
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        replay = self.replay
        assert replay is not None
        for i, value in enumerate(replay.run(number, overlay, changes)):
            name = f"op:{number}" + (f"[{i}]" if i else "")
            overlay[name] = value.detach()
            yield name, self.recorder.array(value)
