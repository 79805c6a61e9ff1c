"""Write files atomically, write strict JSON, and read files within limits."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualml.common import parse
from dualml.common.errors import NotAFile, UserError, escape_unprintable
from dualml.common.json_types import JsonObject
from dualml.common.parse import SURROGATE

MAX_REASON_CHARS = 300  # characters of a parser's message: it may repeat the file
#: Bytes of a JSON or TOML file, at most: traces with many tensors have some ten million.
MAX_TEXT_BYTES = 64 * 2**20
#: Bytes to read at once from a file that reports a smaller size, as files in /proc do.
MIN_READ_BYTES = 2**16
#: Length of a chain of links that the system follows.
MAX_LINKS = 40
KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def nonfinite_to_none(value: Any) -> Any:
    """Return a copy in which every float that is not finite is None, recursively: JSON has no NaN.

    Tuples become lists, and keys become text.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): nonfinite_to_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [nonfinite_to_none(inner) for inner in value]
    return value


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the file at ``path`` atomically; an interruption leaves the old file.

    A link to a file is replaced, never followed: run folders are copied between machines, and a
    link in one may lead anywhere. Paths that a user names on the command line go through
    `dualml.common.outputs`.

    Args:
        mode: permissions of the new file, before the umask is applied.

    Raises:
        NotAFile: ``path`` is a device, a pipe or a socket, or a link to one.
        OSError: it cannot be written; the error names ``path``.
    """
    if is_special(path):
        raise NotAFile(f"{path} is {file_type(path)}, not a file: remove it, or name a file")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fresh.unlink(missing_ok=True)  # left by a killed process with the same number
        with open(os.open(fresh, flags, mode), "wb") as file:
            file.write(content)
        os.replace(fresh, path)
    except OSError as error:  # the error of a failed write lacks the file name
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # the folder is not writable
            fresh.unlink(missing_ok=True)


def is_regular(path: Path) -> bool:
    """Return whether ``path`` leads to a regular file; False if that cannot be determined."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def resolve_links(path: Path) -> Path:
    """Follow all links of a path as far as possible; a loop of links ends where it begins."""
    return Path(os.path.realpath(path))


def is_special(path: Path) -> bool:
    """Return whether ``path`` leads to something that a file must not replace.

    That is a device, a pipe, a socket, or a descriptor of a process (``/dev/stdout``,
    ``/proc/self/fd/1``). False for a folder and for a path that does not exist.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(mode):
        return not stat.S_ISDIR(mode)
    for _ in range(MAX_LINKS):
        if not path.is_symlink():
            return False
        if os.path.realpath(path.parent).startswith("/proc/"):
            return True
        path = path.parent / os.readlink(path)
    return False


def file_type(path: Path) -> str:
    """Return what a path leads to, as worded in error messages: ``a folder``, ``a pipe``.

    A path that leads to nothing is called a link that leads nowhere.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return "a link that leads nowhere"
    return next((name for test, name in KINDS if test(mode)), "a file")


def remove_file(path: Path) -> None:
    """Delete a file, if it exists, and the temporary files that killed writers left next to it."""
    for there in (path, *path.parent.glob(f".{path.name}.*")):
        there.unlink(missing_ok=True)


def write_json(path: Path, value: Any, mode: int = 0o666) -> None:
    """Replace ``path`` by a value as JSON, see `write_bytes`; NaN and infinity become null."""
    text = json.dumps(nonfinite_to_none(value), indent=1, ensure_ascii=False, allow_nan=False)
    # Unpaired surrogates are escaped as text, because no reader accepts them.
    lines = SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text) + "\n"
    write_bytes(path, lines.encode(), mode)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by a text in UTF-8, see `write_bytes`; unpaired surrogates are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def open_to_read(path: Path, *, follow_links: bool = True) -> io.BufferedReader:
    """Open a regular file for reading, without blocking on pipes or opening devices.

    Whoever made the folder decides what is in it, so any path may turn out to be something else.

    Args:
        follow_links: whether links are followed.

    Raises:
        NotAFile: not a regular file.
        OSError: the file is missing, is a folder, or cannot be read.
    """
    try:
        status = os.stat(path, follow_symlinks=follow_links)
    except ValueError:  # the path contains a null character
        raise NotAFile(f"{escape_unprintable(str(path))} is no path") from None
    _check_regular(path, status.st_mode)
    reader: io.BufferedReader = _open_checked(path, "rb", 0 if follow_links else os.O_NOFOLLOW)
    return reader


def open_to_append(path: Path, mode: int = 0o666) -> io.BufferedWriter:
    """Open a regular file for appending, and create it if needed.

    Links are not followed, and pipes do not block.

    Raises:
        NotAFile: the path exists and is not a regular file.
        OSError: the file cannot be written.
    """
    with contextlib.suppress(FileNotFoundError):
        _check_regular(path, path.lstat().st_mode)
    writer: io.BufferedWriter = _open_checked(path, "ab", os.O_NOFOLLOW, mode)
    return writer


def _open_checked(path: Path, how: str, more: int, mode: int = 0o666) -> Any:
    """Open a path without blocking and check the opened file, since the path may have changed.

    Args:
        how: mode for `open`.
        more: flags for `os.open` in addition to those of ``how``.
        mode: permissions of a file that is created.
    """
    more |= os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(
            open(path, how, opener=lambda name, flags: os.open(name, flags | more, mode))
        )
        _check_regular(path, os.fstat(file.fileno()).st_mode)
        os.set_blocking(file.fileno(), True)  # child processes inherit the mode
        stack.pop_all()
    return file


def check_regular(path: Path) -> None:
    """Raise the errors of `open_to_read`, for readers that open the path themselves."""
    open_to_read(path).close()


def _check_regular(path: Path, mode: int) -> None:
    """Raise `NotAFile` or `IsADirectoryError` if ``mode`` is not that of a regular file."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        what = next((name for test, name in KINDS if test(mode)), "no file")
        raise NotAFile(f"{path} is {what}, not a file: remove it, or name a file")


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file of at most ``most`` bytes.

    Args:
        most: maximum size in bytes; a larger file is refused.

    Raises:
        UserError: the file is too large, or not a regular file.
        OSError: the file is missing or cannot be read.
    """
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = file.read(min(most, max(size, MIN_READ_BYTES)) + 1) if size <= most else b""
        except MemoryError:
            raise UserError(f"{path}: {size:,} bytes do not fit into memory") from None
    if max(size, len(content)) > most:
        raise UserError(f"{path} has {max(size, len(content)):,} bytes; at most {most:,} are read")
    return content


def read_text(path: Path, most: int = MAX_TEXT_BYTES) -> str:
    """Read a file as UTF-8; invalid bytes become U+FFFD. Raises the errors of `read_bytes`."""
    return read_bytes(path, most).decode("utf-8", "replace")


def read_json(path: Path) -> Any:
    """Read the value of a JSON file, within the limits of `dualml.common.parse`.

    Raises:
        UserError: the file exceeds a limit, is not JSON (NaN and infinity are not), or is not a
            regular file.
        OSError: the file is missing or cannot be read.
    """
    try:
        return parse.from_json(read_bytes(path, MAX_TEXT_BYTES))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def read_toml(path: Path) -> JsonObject:
    """Read the table of a TOML file, within the limits of `dualml.common.parse`.

    Raises:
        UserError: the file cannot be read, exceeds a limit, or is not TOML (with the line).
    """
    try:
        return parse.from_toml(read_bytes(path, MAX_TEXT_BYTES).decode("utf-8"))
    except UserError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None


@contextlib.contextmanager
def convert_read_errors(what: str) -> Iterator[None]:
    """Convert any error of the block, which reads a file that may be truncated, to a one-line
    `UserError`.

    Parsers of archives, tensors and TOML raise some twenty kinds of errors, from zlib's to
    MemoryError. A `UserError` passes unchanged.

    Args:
        what: the file and the problem, as in ``runs/x/plan: not a readable plan``.

    Raises:
        UserError: replaces the error that was raised.
    """
    try:
        yield
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"{what}: {error} is missing") from None
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{what}: {reason[:MAX_REASON_CHARS]}") from None
