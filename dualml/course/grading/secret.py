"""The secret seed of a class, read without exposing it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import read_bytes

VARIABLE, OPTION = "DUALML_SECRET", "--secret"
#: Maximum bytes of a secret file.
MAX_SECRET_BYTES = 1 << 16
#: Fields of ``/proc/self/stat``, from 0, with the addresses at which arguments and variables begin
#: and end.
PLACES = (47, 48, 49, 50)


def read_secret(
    option: str | None,
    file: Path | None,
    ask: Callable[[], str],
    warn: Callable[[str, str], None] = lambda kind, what: None,
) -> str:
    """Return the secret of an option or a file, else of a variable, else of a prompt on a terminal.

    The variable is removed from this process' environment, which other processes inherit, and the
    secret masked where the system shows it (`hide_secret`).

    Args:
        ask: function that prompts for it on a terminal.
        warn: function called for a secret that others can see: ``seen`` in the list of processes,
            or ``open`` in a file, with its path.

    Raises:
        UserError: no secret is given, both options are, the file cannot be read, or the secret is
            empty or not one line of text.
    """
    variable = os.environ.pop(VARIABLE, None)
    if option is not None and file is not None:
        raise UserError("name the secret once: --secret-file or --secret")
    if option is not None:
        warn("seen", "")
        secret = option
    elif file is not None:
        secret = read_secret_file(file, warn)
    elif variable is not None:
        secret = variable
    elif sys.stdin.isatty() and sys.stderr.isatty():
        secret = ask()
    else:
        raise UserError(
            "there is no secret to draw the inputs from: name a file with --secret-file PATH, or "
            f"set {VARIABLE}"
        )
    hide_secret()
    if not secret.strip():
        raise UserError("the secret must not be empty: everything that is drawn follows from it")
    if not secret.isprintable():
        raise UserError("the secret must be one line of text in UTF-8")
    return secret


def read_secret_file(path: Path, warn: Callable[[str, str], None]) -> str:
    """Read a file's text without the line break at its end; warn if others can read the file. Raise
    `UserError` if the file cannot be read or is not UTF-8."""
    try:
        secret = read_bytes(path, MAX_SECRET_BYTES).decode()
        mode = path.stat().st_mode
    except UnicodeDecodeError:
        raise UserError(f"--secret-file {path}: no text in UTF-8") from None
    except OSError as error:
        raise UserError(f"--secret-file {path}: {error.strerror or error}") from None
    if mode & 0o077:
        warn("open", str(path))
    return secret.removesuffix("\n").removesuffix("\r")


def hide_secret() -> None:
    """Overwrite the secret in the arguments and variables that the system shows to other processes,
    which later changes of the environment do not reach. Do nothing without ``/proc``, or where it
    is not allowed."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/self/stat").read_bytes()
        numbers = stat[stat.rindex(b")") + 2 :].split()
        first, last, start, end = (int(numbers[place - 2]) for place in PLACES)
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for begin, size in ((first, last - first), (start, end - start)):
                memory.seek(begin)
                texts = memory.read(size).split(b"\0")
                for before, text in zip([b"", *texts], texts, strict=False):
                    hidden = masked_text(before, text)
                    memory.seek(begin + len(text) - len(hidden))
                    memory.write(hidden)
                    begin += len(text) + 1


def masked_text(before: bytes, text: bytes) -> bytes:
    """Return asterisks in place of the secret at the end of an argument or a variable ``text``, or
    no bytes if it has none; ``before`` is the preceding one."""
    if before == OPTION.encode():
        return b"*" * len(text)
    for name in (f"{OPTION}=", f"{VARIABLE}="):
        if text.startswith(name.encode()):
            return b"*" * (len(text) - len(name))
    return b""
