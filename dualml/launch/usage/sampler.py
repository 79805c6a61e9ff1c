"""The rank's side of usage monitoring: a thread that samples its process now and then, and writes
the samples to a file."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualml.common.files import open_to_append
from dualml.common.json_types import JsonObject
from dualml.common.sockets import socket_traffic
from dualml.experiment.store.usage import Sample, encode_sample, usage_path
from dualml.launch.usage.devices import device_sampler
from dualml.launch.usage.machine import MachineSampler

#: Minimum seconds between two samples, and approximate maximum number of samples of a trial.
EVERY_S, MAX_SAMPLES = 1.0, 600
#: Share of one core that sampling may take; where a sample costs more there are fewer.
SHARE = 0.005
#: Seconds that the last sample may take at the end of a trial.
LAST_S = 2.0


class UsageSampler:
    """Writes samples to ``rankR.usage.jsonl`` of a trial, from its beginning to its end.

    Args:
        trial: folder of the trial.
        rank: of the process; of the first one, where its ranks are threads.
        device: as in a job, ``gpu:0``.
        comm: the rank's communicator; None for a single rank.
    """

    def __init__(self, trial: Path, rank: int, device: str, comm: Any) -> None:
        self.path, self.comm = usage_path(trial, rank), comm
        self.machine, self.device = MachineSampler(), device_sampler(device)
        self.phase, self.done, self.total = "", None, None
        self.begin, self.spent, self.sample_count = time.monotonic(), 0.0, 0
        self.host, self.stop_event = socket.gethostname(), threading.Event()

    def on_event(self, event: JsonObject) -> None:
        """Remember the ``phase``, ``done`` and ``total`` of an event of the rank, for the samples
        from now on."""
        self.phase = str(event.get("phase") or "")
        self.done, self.total = event.get("done"), event.get("total")

    def run(self) -> None:
        """Sample at once, then until the trial has ended, and once more; stops early if the file
        cannot be written."""
        with contextlib.suppress(OSError):  # no space: who trains will say so
            self.write_sample()
            while not self.stop_event.wait(self.pause()):
                self.write_sample()
            self.write_sample(last=True)

    def pause(self) -> float:
        """Return the seconds until the next sample: at least `EVERY_S`, and more in a long trial or
        where a sample is expensive."""
        cost = self.spent / self.sample_count / SHARE if self.sample_count else 0.0
        return max(EVERY_S, (time.monotonic() - self.begin) / MAX_SAMPLES, cost)

    def write_sample(self, last: bool = False) -> None:
        """Take a sample, marked if it is the ``last``, and append it to the file."""
        begin = cpu_seconds()
        sent, received = socket_traffic() or (None, None)
        values: dict[str, Any] = {
            "at": time.time(),
            "host": self.host,
            "pid": os.getpid(),
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "cpu_s": time.process_time(),
            "memory": resident_bytes(),
            "sent": sent,
            "received": received,
            "collectives_s": None if self.comm is None else self.comm.traffic.seconds,
            "device": self.device() if self.device is not None else None,
            "sampling_s": self.spent,
            **self.machine.sample(),
        }
        values |= {"last": True} if last else {}
        sample = Sample(**{key: value for key, value in values.items() if value is not None})
        with open_to_append(self.path) as file:
            file.write(encode_sample(sample))
        self.sample_count += 1
        self.spent += cpu_seconds() - begin


@contextlib.contextmanager
def sample_usage(trial: Path, rank: int, device: str, comm: Any) -> Iterator[UsageSampler]:
    """Sample this process in a thread while the block is open, and provide the sampler, whose
    `on_event` takes the progress; afterwards wait up to `LAST_S` seconds for the last sample."""
    sampler = UsageSampler(trial, rank, device, comm)
    thread = threading.Thread(target=sampler.run, name="usage", daemon=True)
    thread.start()
    try:
        yield sampler
    finally:
        sampler.stop_event.set()
        thread.join(LAST_S)


def cpu_seconds() -> float:
    """Return the CPU seconds of this thread so far, plus those of all ended children of the
    process."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)
