"""A real network on one machine: Linux network namespaces as nodes, with links of a given rate.

Each node is a namespace with one interface. A cable (veth) connects it to a bridge in a separate
namespace, so that the host's network is not touched. A token bucket (`tc tbf`) shapes both ends of
the cable: full duplex, like Ethernet.

Further settings make measurements exact. Segmentation offload is off, so that packets on the wire
are those that the interface counts (otherwise a counter sees one header for dozens of packets).
Queues are longer than all pending data, so that nothing is lost; congestion control is plain Reno,
which then only grows and does not restart after a pause. Send buffers are small: once the system
has accepted a message, the sender continues, and its next message shares the link with the rest of
this one (with a buffer of 8 MB, a tree of four nodes takes five vector times instead of four).
Receive buffers are large, so that the link does not idle while a reader waits for a core.
Connections share a link evenly, because each has only two packets in the queue (with the kernel's
default, one millisecond of data, one of two connections got 69 % of the link, and a short reply
arrived late behind a vector).

Names contain the owner's process id; what a dead owner left behind is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DEVICE = "eth0"
NAME = re.compile(r"dualml-(\d+)-(\d+)-")
#: MTU in bytes as in data centres: headers are less than a hundredth.
MTU = 9000
ETHERNET = 14  # bytes of a packet beyond its MTU, as the shaper and the counters see it
#: Size of the token bucket, in seconds of its link and in packets at least: that much is sent at
#: once after a pause. If the timer of busy cores is later than that, the link loses rate: with two
#: packets, a ring over four nodes of 500 Mbit/s, in which all links are busy, took 4 % longer.
BURST_S, BURST = 0.001, 2
#: Mask of all cores (32 at most) for receive packet steering, which handles all packets of a
#: connection on one core. Otherwise the sender's core does, and when the sender moves, packets
#: overtake each other; TCP takes this for a loss, sends again, and slows down.
CORES = f"{(1 << min(os.cpu_count() or 1, 32)) - 1:x}"
#: Buffer bytes of a sender (half of which the kernel needs for bookkeeping), a receiver and a
#: shaper.
SENT, RECEIVED, QUEUE = 500_000, 8 * 10**6, 128 * 10**6
#: Unsent data of one connection in MTU, half of which the kernel needs for bookkeeping.
WAITING = 4
SETTINGS = {
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_wmem": f"4096 {SENT} {SENT}",
    "net/ipv4/tcp_rmem": f"4096 {RECEIVED} {RECEIVED}",
    "net/ipv4/tcp_limit_output_bytes": f"{WAITING * MTU}",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}
COMMAND_S = 20.0
#: Nice value that prefers ranks over other processes: ranks mostly wait for a link, and a late
#: reaction would be measured.
NICE = -5


class NoBed(Exception):
    """An error that no network can be made here; the text says why."""


def run(*words: object) -> str:
    """Run a command and return its output; raise `NoBed` with the output if it failed."""
    try:
        done = subprocess.run(
            [str(w) for w in words], capture_output=True, text=True, timeout=COMMAND_S, check=True
        )
    except subprocess.CalledProcessError as error:
        raise NoBed(f"{' '.join(map(str, words))}: {error.stderr.strip()}") from None
    return done.stdout


@dataclass(frozen=True)
class Counters:
    """Byte and packet counters of an interface so far, including all headers."""

    sent: int
    received: int
    packets_sent: int
    packets_received: int

    def __sub__(self, other: Counters) -> Counters:
        return Counters(
            *(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )


@dataclass(frozen=True)
class Node:
    """One machine of the network; ``mbit`` None means no rate limit."""

    namespace: str
    address: str
    mbit: float | None

    def command(self, *words: object) -> list[str]:
        """Return the words that run a command on this node."""
        return ["ip", "netns", "exec", self.namespace, *map(str, words)]

    def counters(self) -> Counters:
        (link,) = json.loads(run("ip", "-n", self.namespace, "-s", "-j", "link", "show", DEVICE))
        out, into = link["stats64"]["tx"], link["stats64"]["rx"]
        return Counters(out["bytes"], into["bytes"], out["packets"], into["packets"])


def unable() -> str | None:
    """Return why no network can be made here, if that is known without trying; else ""."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc") if not shutil.which(name)]
    return f"no {' and no '.join(missing)} (iproute2)" if missing else None


@contextlib.contextmanager
def bed(*mbit: float | None) -> Iterator[list[Node]]:
    """Create machines on one switch, one for each rate, and remove them and their processes
    afterwards.

    Args:
        mbit: rate of each node's link in Mbit/s, each way; None is unlimited.

    Raises:
        NoBed: not root, no ip, no tc, or a kernel that has no namespaces or no shaper.
    """
    if why := unable():
        raise NoBed(why)
    sweep()
    mark = f"dualml-{os.getpid()}-{start_ticks(os.getpid())}-{time.monotonic_ns() % 10**6}"
    switch, nodes = (
        f"{mark}-switch",
        [Node(f"{mark}-n{i}", f"10.77.0.{i}", rate) for i, rate in enumerate(mbit, start=1)],
    )
    try:
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        for number, node in enumerate(nodes, start=1):
            plug(node, switch, f"port{number}")
        yield nodes
    finally:
        for name in (switch, *(node.namespace for node in nodes)):
            remove(name)


def bucket(mbit: float) -> int:
    """Return the bytes that a link's token bucket holds."""
    return max(BURST * (MTU + ETHERNET), round(mbit * 1e6 / 8 * BURST_S))


def plug(node: Node, switch: str, port: str) -> None:
    """Create a node and its cable."""
    inside = node.namespace
    run("ip", "netns", "add", inside)
    lines = [f"[ -e /proc/sys/{k} ] && echo {v} > /proc/sys/{k}" for k, v in SETTINGS.items()]
    run(*node.command("sh", "-c", "; ".join([*lines, "true"])))
    run(
        "ip",
        "link",
        "add",
        port,
        "mtu",
        MTU,
        "netns",
        switch,
        "type",
        "veth",
        "peer",
        "name",
        DEVICE,
        "mtu",
        MTU,
        "netns",
        inside,
    )
    run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
    run("ip", "-n", inside, "addr", "add", f"{node.address}/24", "dev", DEVICE)
    for name, device in ((switch, port), (inside, DEVICE)):
        run("ip", "-n", name, "link", "set", device, "up", "gso_max_segs", 1)
        steering = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
        write = f"[ ! -w {steering} ] || echo {CORES} > {steering}"
        run("ip", "netns", "exec", name, "sh", "-c", write)
        if node.mbit is not None:
            run(
                "tc",
                "-n",
                name,
                "qdisc",
                "add",
                "dev",
                device,
                "root",
                "tbf",
                "rate",
                f"{round(node.mbit * 1e6)}bit",
                "burst",
                bucket(node.mbit),
                "limit",
                QUEUE,
            )
    run("ip", "-n", inside, "link", "set", "lo", "up")


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in the kernel's ticks, or None if there is no such
    process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def sweep() -> None:
    """Remove what dead owners left behind."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        owner = NAME.match(name)
        if owner and start_ticks(int(owner[1])) != int(owner[2]):
            remove(name)


def remove(name: str) -> None:
    """End the processes in a namespace of ours and remove it; do nothing if it is gone."""
    with contextlib.suppress(NoBed):
        for pid in run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "del", name)


def dualml_run(
    nodes: Sequence[Node],
    words: Sequence[object],
    folder: Path,
    *,
    ranks: int = 1,
    environ: Mapping[str, str] | None = None,
    limit: float = 600,
) -> str:
    """Run ``dualml run`` with ``ranks`` ranks on each node, without a folder shared between
    nodes.

    Args:
        words: arguments of rank 0, which choose the experiment.
        folder: parent of the ranks' private temporary folders.

    Returns:
        Rank 0's output.

    Raises:
        RuntimeError: a rank failed or took longer than ``limit`` seconds; with its output.
    """
    where, size = f"tcp://{nodes[0].address}:29500", len(nodes) * ranks
    begin, processes = time.monotonic(), list[tuple[subprocess.Popen[bytes], Path]]()
    start = ["nice", "-n", NICE, sys.executable, "-P", "-m", "dualml", "run"]
    try:
        for rank in range(size):
            own = folder / f"rank{rank}"
            (own / "tmp").mkdir(parents=True, exist_ok=True)
            more = ["--rank", rank, "--world-size", size, "--rendezvous", where]
            command = nodes[rank // ranks].command(*start, *(words if rank == 0 else ()), *more)
            env = {
                **os.environ,
                "DUALML_TOKEN": "of this bed",
                **(environ or {}),
                "TMPDIR": str(own / "tmp"),
            }
            with (own / "output").open("wb") as file:
                process = subprocess.Popen(
                    command, cwd=own, env=env, stdout=file, stderr=subprocess.STDOUT
                )
            processes.append((process, own / "output"))
        for rank, (process, output) in enumerate(processes):
            left = limit - (time.monotonic() - begin)
            try:
                code: int | None = process.wait(max(left, 0.1))
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                said = output.read_text("utf-8", "replace")[-2000:]
                how = "took too long" if code is None else f"ended with {code}"
                raise RuntimeError(f"rank {rank} {how}: {said}")
    finally:
        for process, _ in processes:
            if process.poll() is None:
                process.terminate()
        for process, _ in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
    return processes[0][1].read_text("utf-8", "replace")
