"""One node of a run in a container: ``python -m dualml.runner.render.node OPTIONS -- WORDS``.

The engine tells which node this is. The rest is done here: read the token from a secret, wait until
the first node's name can be resolved, and resume a run that has begun.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.algorithms.communicator.rendezvous import check_rendezvous
from dualml.common.errors import UserError
from dualml.common.machine import python_argv
from dualml.common.variables import JOB_OUT
from dualml.launch.connection import TOKEN, parse_address
from dualml.launch.node_names import parse_node_number, wait_for_host
from dualml.runner.jobs.store import job_argv, remove_unstarted, start_argv
from dualml.runner.render.request import PORT

#: Variable with the path of a file that holds the token, as engines pass secrets.
TOKEN_FILE = f"{TOKEN}_FILE"
#: Ports of the launchers' own rendezvous.
TORCHRUN, MSRUN = 29500, 8118


def parse_options(words: Sequence[str]) -> argparse.Namespace:
    """Parse this program's options and, after ``--``, the words of the run or command; exits with 2
    on an error."""
    parser = argparse.ArgumentParser(prog="dualml.runner.render.node")
    parser.add_argument("--node", required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rendezvous")
    parser.add_argument("--command", action="store_true", help="the words are any command")
    parser.add_argument("--mindspore", action="store_true")
    parser.add_argument("--launcher", choices=("torch", "mindspore"))
    parser.add_argument("--out", required=True)
    parser.add_argument("words", nargs="+")
    return parser.parse_args(words)


def load_token(path: str) -> None:
    """Read the token of the run from the file ``path`` into the environment variable where dualml
    expects it.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        os.environ[TOKEN] = Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise UserError(f"{TOKEN_FILE}={path}: {error.strerror}") from None


def container_argv(asked: argparse.Namespace) -> list[str]:
    """Return the command line that this container executes: of the experiment, under a launcher if
    one is asked for, or of a worker of a command. ``asked`` is the result of `parse_options`.

    Wait until the first node's name can be resolved. Of a run that was killed before it began, the
    first node removes the remains.
    """
    node, out = parse_node_number(asked.node), asked.out
    if asked.command:
        return worker_argv(asked, node)
    if node == 0:
        remove_unstarted(Path(out))
    words = job_argv(asked.words, out) if node == 0 else start_argv(asked.words, out)
    if asked.rendezvous is None:
        return python_argv("-m", "dualml", *words)
    check_rendezvous(asked.rendezvous)
    host, _ = parse_address(asked.rendezvous)
    address = wait_for_host(host)
    size, where = asked.nodes * asked.ranks, ["--rendezvous", asked.rendezvous]
    if asked.launcher is None:
        rank = ["--rank", str(node), "--world-size", str(size), *where]
        return python_argv("-m", "dualml", *(words if node == 0 else ["run"]), *rank)
    if asked.launcher == "torch":
        return python_argv(
            "-m",
            "torch.distributed.run",
            f"--nnodes={asked.nodes}",
            f"--node-rank={node}",
            f"--nproc-per-node={asked.ranks}",
            f"--master-addr={host}",
            f"--master-port={TORCHRUN}",
            "-m",
            "dualml",
            *words,
            *where,
        )
    return [
        str(Path(sys.executable).with_name("msrun")),
        f"--worker_num={size}",
        f"--local_worker_num={asked.ranks}",
        f"--master_addr={address}",
        f"--master_port={MSRUN}",
        f"--node_rank={node}",
        "--join=True",
        "--log_dir=/tmp/msrun",
        # msrun treats the word `python` as the interpreter, and any other as a script.
        "python",
        "-P",
        "-m",
        "dualml",
        *words,
        *where,
    ]


def worker_argv(asked: argparse.Namespace, node: int) -> list[str]:
    """Return the command line of a container that runs worker ``node`` of a command; create the
    folder for its output, and set the variable that names it."""
    os.environ[JOB_OUT] = asked.out
    with contextlib.suppress(OSError):  # a script need not write
        Path(asked.out).mkdir(parents=True, exist_ok=True)
    host, port = (
        ("127.0.0.1", PORT) if asked.rendezvous is None else parse_address(asked.rendezvous)
    )
    return python_argv(
        "-m",
        "dualml.runner.jobs.workers",
        f"--rank={node}",
        f"--size={asked.nodes}",
        f"--address={host}",
        f"--port={port}",
        f"--scheduler={MSRUN if asked.mindspore else 0}",
        "--",
        *asked.words,
    )


def main(words: Sequence[str]) -> None:
    """Replace this process by the run, or by a command's worker, as the options ``words`` say; exit
    with code 2 on an error."""
    asked = parse_options(words)
    try:
        if path := os.environ.get(TOKEN_FILE):
            load_token(path)
        becomes = container_argv(asked)
    except UserError as error:
        print(f"dualml: {error}", file=sys.stderr)
        sys.exit(2)
    sys.stderr.flush()
    try:
        os.execv(becomes[0], becomes)
    except OSError as error:
        print(f"dualml: {becomes[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
