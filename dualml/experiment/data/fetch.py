"""Download a dataset from its mirrors into the cache.

A machine without a network, or behind a firewall that drops packets, must find out soon: all
mirrors are probed at once before anything is downloaded, and the wait is bounded.

The library pooch is not used: it limits neither the size nor the duration of a download, unpacks
what a server declares to be compressed, fails for a malformed ``Content-Length``, and compares the
checksum of the file as it was sent, whereas mirrors pack the same data differently.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dualml.common.bounded_io import read_body
from dualml.common.errors import UserError
from dualml.experiment.data.archive import unpack_archive
from dualml.experiment.data.locations import (
    cache_folder,
    find_dataset_file,
    read_verified,
    write_atomic,
)
from dualml.experiment.data.registry import DatasetInfo, IdxFile, RecordFile, RecordInfo

PROBE_S = 4.5  # for all mirrors together, name resolution included
CONNECT_S, READ_S = 4.0, 10.0
ATTEMPTS, PAUSE_S = 3, 0.5
CHUNK = 1 << 16
#: Time limit in seconds of one file from one mirror: 10 MB at 17 kB/s.
FILE_S = 600.0
#: Bytes per second below which a mirror of an archive is given up.
MIN_BYTES_PER_S = 100_000
#: Bytes by which gzip enlarges an incompressible file, including its stored name.
PACKED = 1 << 16

OFFLINE = "DUALML_OFFLINE is set"


class Unreachable(UserError):
    """Error: no mirror delivered a good copy; ``why`` names each mirror's failure."""

    def __init__(self, info: DatasetInfo, why: str) -> None:
        self.why = why
        super().__init__(
            f"{info.name} could not be downloaded ({why}); remedy: go online and run "
            f"`{info.remedy}`, or bring {info.manual_files} and run `{info.remedy} --from DIR`"
        )


def download(info: DatasetInfo) -> Path:
    """Download the dataset's missing or bad files into the cache; progress goes to stderr.

    Returns:
        The folder in the cache.

    Raises:
        Unreachable: no mirror delivered every file with the right checksum, or ``DUALML_OFFLINE``
            forbids downloads.
        UserError: the cache cannot be written.
    """
    folder = cache_folder(info)
    wanted = [file for file in info.files if not is_good(folder, file)]
    if not wanted:
        return folder
    if os.environ.get("DUALML_OFFLINE", "0") not in ("", "0"):
        raise Unreachable(info, OFFLINE)
    packed = info.archive if isinstance(info, RecordInfo) else f"{wanted[0].name}.gz"
    faults = probe_mirrors(info.mirrors, packed)
    alive = [mirror for mirror in info.mirrors if mirror not in faults]
    for mirror in alive:
        try:
            if isinstance(info, RecordInfo):
                for name, data in fetch_archive(mirror, info).items():
                    write_atomic(folder / name, data)
                return folder
            while wanted:
                file = wanted[0]
                assert isinstance(file, IdxFile)
                write_atomic(folder / file.name, fetch(mirror, file))
                wanted.pop(0)
            return folder
        except MirrorError as error:
            faults[mirror] = str(error)
    raise Unreachable(info, "; ".join(f"{host_of(m)}: {faults[m]}" for m in info.mirrors))


class MirrorError(Exception):
    """Error: one mirror failed to deliver a file; another one may succeed."""


def fetch(mirror: str, file: IdxFile) -> bytes:
    """Fetch one file, packed as ``.gz``, from one mirror, check it and return its uncompressed
    bytes; transient errors are retried.

    Args:
        mirror: URL that ends before the file's name.

    Raises:
        MirrorError: the mirror does not have it, keeps failing, or sends something else.
    """
    name = f"{file.name}.gz"
    data = fetch_with_retries(mirror, name, file.size + file.size // 1000 + PACKED)
    try:
        return read_verified(Path(name), file, "", data)
    except UserError as error:
        raise MirrorError(str(error)) from None


def fetch_archive(mirror: str, info: RecordInfo) -> dict[str, bytes]:
    """Fetch a dataset's archive from one mirror; return name → bytes of its files, all checked.

    Raises:
        MirrorError: the mirror does not have it, keeps failing, or sends something else.
    """
    data = fetch_with_retries(
        mirror, info.archive, info.size, max(FILE_S, info.size / MIN_BYTES_PER_S)
    )
    try:
        return unpack_archive(info, Path(info.archive), data, "")
    except UserError as error:
        raise MirrorError(str(error)) from None


def fetch_with_retries(mirror: str, name: str, most: int, seconds: float | None = None) -> bytes:
    """Return the bytes of the file at the URL ``mirror`` + ``name``, at most three tries; only
    transient errors are retried.

    Args:
        most: largest size in bytes.
        seconds: time limit of each try; None: `FILE_S`.

    Raises:
        MirrorError: the mirror does not have the file, keeps failing, or sends more bytes.
    """
    import requests

    limit = FILE_S if seconds is None else seconds
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return fetch_url(mirror + name, f"{name} from {host_of(mirror)}", most, limit)
        except ValueError as error:  # of any size or without an end: not our file
            raise MirrorError(f"{name}: {error}") from None
        except TimeoutError:
            raise MirrorError(f"{name} was not complete after {limit:g} s") from None
        except requests.RequestException as error:
            if attempt == ATTEMPTS or not is_transient(error):
                raise MirrorError(describe_network_error(error)) from None
            time.sleep(PAUSE_S * attempt)
    raise AssertionError("the last try returned or raised")


def fetch_url(url: str, text: str, most: int, seconds: float) -> bytes:
    """Download a URL and return its bytes; progress on stderr is a bar on a terminal, else one
    plain line.

    Args:
        text: description of the download, for the progress.
        most: bytes that it may have.

    Raises:
        requests.RequestException: the transfer failed.
        ValueError: it has more bytes.
        TimeoutError: it was not complete after ``seconds``.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"downloading {text}", soft_wrap=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=None)
        read = partial(stream_url, url, most, partial(bar.update, task), seconds)
        return run_with_timeout(seconds, read)


def run_with_timeout(seconds: float, work: Callable[[], bytes]) -> bytes:
    """Run ``work`` and return its result, or raise its exception; raise `TimeoutError` if it takes
    longer than ``seconds``.

    The work runs in a daemon thread, which is abandoned on a timeout: a server that sends a byte
    now and then would block a reading call for ever.
    """
    done: queue.Queue[bytes | BaseException] = queue.Queue(1)

    def run() -> None:
        try:
            done.put(work())
        except BaseException as error:
            done.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        result = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"not complete after {seconds:g} s") from None
    if isinstance(result, BaseException):
        raise result
    return result


def stream_url(url: str, most: int, on_progress: Callable[..., Any], seconds: float) -> bytes:
    """Download ``url`` as the server stores it and return its bytes; report the total and each part
    to ``on_progress`` as ``total=`` (None: unknown) and ``advance=``.

    Args:
        most: bytes that it may have.
        seconds: time limit. The errors are those of `fetch_url`.
    """
    import requests
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    received = bytearray()
    plain = {"Accept-Encoding": "identity"}
    with requests.get(url, stream=True, timeout=(CONNECT_S, READ_S), headers=plain) as answer:
        answer.raise_for_status()
        length = answer.headers.get("Content-Length", "")
        on_progress(total=int(length) if length.isascii() and length.isdigit() else None)
        read = partial(answer.raw.read, decode_content=False)
        try:
            for part in read_body(read, most, seconds, CHUNK):
                received += part
                on_progress(advance=len(part))
        except ReadTimeoutError as error:
            raise requests.Timeout(error) from None
        except HTTPError as error:
            raise requests.ConnectionError(error) from None
    return bytes(received)


def is_transient(error: Exception) -> bool:
    """Return whether a retry may help after ``error``: after a server's 5xx or a broken transfer,
    but not after a time-out."""
    import requests

    if isinstance(error, requests.HTTPError):
        return error.response is None or error.response.status_code >= 500
    return not isinstance(error, requests.Timeout)


def probe_mirrors(mirrors: Sequence[str], name: str) -> dict[str, str]:
    """Ask all mirrors at once for the file ``name`` and return mirror → reason for those without an
    answer in `PROBE_S` seconds.

    Any HTTP answer is a sign of life. The threads are daemons, because a name resolution cannot be
    cut short.
    """
    import requests

    silent = f"no answer within {PROBE_S:g} s"
    faults = dict.fromkeys(mirrors, silent)

    def probe_mirror(mirror: str) -> None:
        """Send one request, and remove the mirror from ``faults`` if it answers."""
        try:
            requests.head(mirror + name, timeout=(CONNECT_S, CONNECT_S))
        except requests.RequestException as error:
            faults[mirror] = describe_network_error(error)
        else:
            faults.pop(mirror, None)

    threads = [
        threading.Thread(target=probe_mirror, args=(mirror,), daemon=True) for mirror in mirrors
    ]
    deadline = time.monotonic() + PROBE_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(faults)


def describe_network_error(error: Exception) -> str:
    """Describe a network error in a few words; requests wraps the cause several layers deep."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "timed out"
    text = str(error)
    for sign in ("Name or service not known", "Failed to resolve", "getaddrinfo failed"):
        if sign in text:
            return "its name cannot be resolved"
    if "Connection refused" in text:
        return "connection refused"
    return f"{type(error).__name__}: {text[:120]}"


def is_good(folder: Path, file: IdxFile | RecordFile) -> bool:
    """Return whether ``folder`` already holds this file, plain or as ``.gz``, with the right
    content."""
    path = find_dataset_file(folder, file)
    if path is None:
        return False
    try:
        read_verified(path, file, "")
    except UserError:
        return False
    return True


def host_of(url: str) -> str:
    """Return the host name of a URL, with its port if the URL names one."""
    return urlsplit(url).netloc
