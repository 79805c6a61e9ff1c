"""One worker of a job in a cluster or a container: ``python -m dualml.runner.jobs.workers OPTIONS
-- COMMAND``. The program that starts it tells it its rank."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.common.errors import UserError
from dualml.launch.node_names import parse_node_number, wait_for_host
from dualml.runner.jobs.workers.environment import WorkerEnv
from dualml.runner.jobs.workers.group import EXIT_TIMED_OUT, run_workers
from dualml.runner.jobs.workers.record import TERMINATED


def parse_options(words: Sequence[str]) -> argparse.Namespace:
    """Parse the options of a worker and, after ``--``, its command; exits with 2 on an error."""
    parser = argparse.ArgumentParser(prog="dualml.runner.jobs.workers")
    parser.add_argument("--slurm", action="store_true", help="Slurm says which worker this is")
    parser.add_argument("--rank", default="0")
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--local-size", type=int, default=1)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--scheduler", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def worker_env(asked: argparse.Namespace) -> WorkerEnv:
    """Return the rank and address of this worker, from Slurm's variables or the options; without
    Slurm, wait until the first node's name is known.

    Raises:
        UserError: the rank is unknown, or the first node's name cannot be resolved.
    """
    rank, local_rank = parse_node_number(asked.rank), 0
    size, address = asked.size, asked.address
    if asked.slurm:
        rank, local_rank, size = (
            int(require_variable(f"SLURM_{w}")) for w in ("PROCID", "LOCALID", "NTASKS")
        )
        address = require_variable("SLURM_LAUNCH_NODE_IPADDR")
    elif size > 1:
        address = wait_for_host(address)
    return WorkerEnv(
        rank=rank,
        local_rank=local_rank,
        size=size,
        local_size=asked.local_size,
        address=address,
        port=asked.port,
        scheduler=asked.scheduler,
    )


def require_variable(name: str) -> str:
    """Return the value of an environment variable that srun sets.

    Raises:
        UserError: it is not set.
    """
    if name not in os.environ:
        raise UserError(f"{name} is not set: --slurm is for tasks that srun starts")
    return os.environ[name]


def main(words: Sequence[str]) -> int:
    """Run the worker that the command-line options ``words`` describe, until it has ended.

    Returns:
        The exit code of `run_workers`; under Slurm 124 for a worker that SIGTERM ended. Slurm sends
        it to every task once one has failed, and srun reports the largest code of all: 143 would
        take the place of the 137 of a task that was killed first.
    """
    asked = parse_options(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run_workers(asked.command, [worker_env(asked)], asked.out, asked.limit)
    return EXIT_TIMED_OUT if asked.slurm and code in TERMINATED else code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"dualml: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
