"""A real network of namespaces as machines, whose links have a rate and whose bytes are counted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from conformance.backends import require
from running import TINY, bed, netbed

from dualml.parallel.aggregation import strategy

pytestmark = pytest.mark.system
MB = 10**6
#: Header bytes as in netbed's tables: Ethernet, IP and TCP with time stamps.
HEADERS = 66
SERVER = "import socket, sys; s = socket.create_server((sys.argv[1], 5000)); c = s.accept()[0]\n"
SERVER += "for n in eval(sys.argv[2]):\n"
SERVER += "    while n: n -= len(c.recv(min(n, 1 << 16)))\n    c.sendall(b'x')"
CLIENT = "import socket, sys, time; time.sleep(0.3)\n"
CLIENT += "c = socket.create_connection((sys.argv[1], 5000))\n"
CLIENT += "for n in eval(sys.argv[2]):\n"
CLIENT += "    t = time.perf_counter(); c.sendall(bytes(n)); c.recv(1)\n"
CLIENT += "    print(time.perf_counter() - t)"


def namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, timeout=20, check=True
    ).stdout


def transfer(to: Any, by: Any, sizes: list[int]) -> list[float]:
    """Return the seconds until messages of these sizes were answered, one after the other."""
    words = ["-c", SERVER, to.address, str(sizes)]
    server = subprocess.Popen(to.command(sys.executable, *words))
    client = by.command(sys.executable, "-c", CLIENT, to.address, str(sizes))
    try:
        done = subprocess.run(client, capture_output=True, text=True, timeout=30, check=True)
        assert server.wait(10) == 0
    finally:
        server.kill()
        server.wait(10)
    return [float(line) for line in done.stdout.split()]


def test_a_link_carries_its_rate_and_no_message_rides_for_free() -> None:
    small, large = 100_000, MB
    with bed(100, 20) as (fast, slow):
        before = fast.counters()
        _, *spent = transfer(fast, slow, [64_000, *[large] * 3, *[small] * 5])
        moved = fast.counters() - before
        # The slower end of a cable decides; headers take a hundredth. What the bucket holds is what
        # a message gains at most; it was full.
        free = netbed.bucket(20)
        rate = 8 * large / min(spent[:3])
        assert 0.93 * 20e6 < rate < 20e6 / (1 - free / large)
        assert 8 * (small - free) / 20e6 < sorted(spent[3:])[2] < 1.5 * 8 * small / 20e6
        payload = moved.received - HEADERS * moved.packets_received
        assert payload == pytest.approx(64_000 + 3 * large + 5 * small, rel=0.002)
        assert moved.packets_received > 3 * large / netbed.MTU  # counted as they are on the wire


@pytest.mark.parametrize("how", ["error", "signal", "death"])
def test_nothing_is_left_of_a_bed(how: str, tmp_path: Path) -> None:
    with bed(None):
        pass  # or skip
    script = tmp_path / "owner.py"
    script.write_text(
        f"import subprocess, sys, time\nsys.path.append({str(Path(netbed.__file__).parent)!r})\n"
        "import netbed\nwith netbed.bed(100, 100) as nodes:\n"
        "    sleeper = subprocess.Popen(nodes[0].command('sleep', '60'))\n"
        "    print(nodes[0].namespace, sleeper.pid, flush=True)\n"
        f"    {'1 / 0' if how == 'error' else 'time.sleep(60)'}\n"
    )
    owner = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    assert owner.stdout is not None
    name, sleeper = owner.stdout.readline().split()
    assert name.startswith(f"dualml-{owner.pid}-")
    if how != "error":
        assert name in namespaces()
        owner.send_signal(signal.SIGINT if how == "signal" else signal.SIGKILL)
    assert owner.wait(20) != 0
    if how == "death":
        assert name in namespaces()  # nobody could clean up
        netbed.sweep()
    assert f"dualml-{owner.pid}-" not in namespaces()
    deadline = time.monotonic() + 5
    while at_work(int(sleeper)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def at_work(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_living_owners_bed_is_left_alone() -> None:
    with bed(None) as (node,):
        netbed.sweep()
        assert node.namespace in namespaces()
    assert node.namespace not in namespaces()


def micro(nodes: list[Any], folder: Path, names: list[str], ranks: int) -> dict[str, Any]:
    """Return the rows of a micro-benchmark by strategy, for 1 MB."""
    lab = folder / "lab.toml"
    lab.write_text(
        TINY.partition("[arms")[0]
        + f'[arms.micro]\nkind = "collectives"\nworld_size = {len(nodes) * ranks}\n'
        f"sizes = [1048576]\nstrategies = {json.dumps(names)}\nseconds = 0.2\n"
    )
    words = [
        lab,
        "--backend",
        "torch",
        "--out",
        folder / "out",
        "--threads",
        1,
        "--no-report",
        "--no-find",
    ]
    netbed.dualml_run(nodes, words, folder, ranks=ranks, limit=200)
    (path,) = (folder / "out").glob("trials/*/*/*/collectives.json")
    record = json.loads(path.read_text())
    assert record["per_machine"] == ranks
    return {row["strategy"]: row for row in record["rows"]}


def test_the_wire_sees_what_is_counted_and_two_levels_beat_a_ring(tmp_path: Path) -> None:
    """With two nodes of two ranks, hierarchical sends S out of a node, the ring 1.5 S."""
    require("torch")
    with bed(100, 100) as nodes:
        rows = micro(nodes, tmp_path, ["ring", "hierarchical"], ranks=2)
    elements = 1048576 // 4
    for name, row in rows.items():
        way = strategy(name).for_nodes(2).schedule(4)
        sent = [way.sent_volume(r, elements)[1] * 4 for r in range(4)]
        assert [t["bytes_sent"] for t in row["traffic"]] == sent
        for node, port in enumerate(row["ports"][::2]):
            leaving = sum(
                4 * (b - a)
                for step in way.steps
                for t in step
                for a, b in [way.span(t, elements)]
                if t.source // 2 == node != t.target // 2
            )
            payload = port["bytes_sent"] - HEADERS * port["packets_sent"]
            assert leaving <= payload, (name, node)
            assert port["bytes_sent"] <= 1.03 * leaving, (name, node)
    assert rows["hierarchical"]["seconds"] < 0.9 * rows["ring"]["seconds"]
