"""Run ``python -m dualml…`` without start-up time: fork it from this process, which has imported
dualml.

A small run starts three processes, each of which would spend a second on imports. A forked process
behaves like any other: signals, exit code, environment, files, its own session; so do the workers
it starts. Where start-up itself is tested (imports, variables read before it), start a real process
with `subprocess`.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import traceback
from functools import cache
from typing import Any

from threadpoolctl import threadpool_limits

import dualml


@cache
def warm() -> None:
    """Import all of dualml once, for every process that will be forked."""
    for module in pkgutil.walk_packages(dualml.__path__, "dualml."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen` that forks ``python [-P] -m dualml…`` and starts any other command as
    usual."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        words = list(map(os.fspath, args))
        safe = words[1:2] == ["-P"]
        module = words[2 + safe :]
        dashes = [sys.executable, *["-P"] * safe, "-m"]
        if words[: 2 + safe] != dashes or module[0].partition(".")[0] != "dualml":
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        (_, preexec, _, _, cwd, env, _, _, _, stdin, _, _, stdout, _, stderr, _, _, _, _, _,
         new_session, _) = rest  # fmt: skip
        warm()
        sys.stdout.flush()
        sys.stderr.flush()
        # An interrupt now would be lost in what Python calls before and after it forks.
        kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(module, (stdin, stdout, stderr), cwd, env, preexec, new_session)
            finally:
                os._exit(1)
        self._child_created = True
        self._close_pipe_fds(*rest[9:15])
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)


def become(
    words: list[str],
    streams: tuple[int, int, int],
    cwd: Any,
    env: dict[str, str] | None,
    preexec: Any,
    new_session: bool,
) -> None:
    """Become the process that ``words`` would have started, from its first line to its exit
    code."""
    gc.freeze()  # nothing of the parent's is closed here when it is collected
    for number, file in enumerate(streams):
        if file >= 0:
            os.dup2(file, number)
    os.closerange(3, 4096)
    for sign in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(sign, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if new_session:
        os.setsid()
    if cwd is not None:
        os.chdir(cwd)
    if preexec is not None:
        preexec()
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
        if threads := env.get("OPENBLAS_NUM_THREADS"):
            # What the library has read already, when the parent imported it.
            threadpool_limits(int(threads), user_api="blas")
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding, "backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = words
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    subprocess.Popen = Forked  # type: ignore[misc]  # the workers, too
    code: Any = 0
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
