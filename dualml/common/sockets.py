"""Count the network traffic of this process, whichever library in it sends; on Linux."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

FOLDER = Path("/proc/self/fd")
#: Offsets in ``struct tcp_info`` of the kernel (since 4.19) of ``tcpi_bytes_received``,
#: ``tcpi_notsent_bytes``, ``tcpi_bytes_sent`` and ``tcpi_bytes_retrans``, and the bytes of such a
#: counter; ``tcpi_notsent_bytes`` has half as many. All are unsigned.
RECEIVED_OFFSET, QUEUED_OFFSET, SENT_OFFSET, RETRANS_OFFSET, WORD_BYTES = 128, 144, 200, 208, 8
#: Bytes of ``struct tcp_info`` to read.
INFO_BYTES = 256
#: Seconds between two readings of the counters, and the maximum number of readings.
PAUSE_S, MAX_READS = 0.001, 20


def sent_bytes() -> int | None:
    """Return the bytes written to this process's open TCP connections since each was opened, or
    None where the system does not count them.

    Retransmitted bytes count once. Bytes that wait in the system's send queue count as sent. A
    framework thread may still be writing, so the count is taken when two readings, 1 ms apart,
    agree, or after 20 ms at the latest.
    """
    if (counted := socket_traffic()) is None:
        return None
    count = counted[0]
    for _ in range(MAX_READS):
        time.sleep(PAUSE_S)
        before, count = count, (socket_traffic() or (0, 0))[0]
        if count == before:
            break
    return count


def socket_traffic() -> tuple[int, int] | None:
    """Return the bytes sent and received over this process's open TCP connections, or None where
    the system does not count them; `sent_bytes` says what counts, but this reads only once."""
    if not FOLDER.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    counts = [_traffic_of_descriptor(name) for name in os.listdir(FOLDER)]
    return sum(sent for sent, _ in counts), sum(received for _, received in counts)


def _traffic_of_descriptor(name: str) -> tuple[int, int]:
    """Return the bytes sent and received through a file descriptor; (0, 0) if it is no open TCP
    socket."""
    with contextlib.suppress(OSError):  # closed since, or no socket
        if not os.readlink(FOLDER / name).startswith("socket:"):
            return 0, 0
        with socket.socket(fileno=os.dup(int(name))) as copy:
            if copy.family not in (socket.AF_INET, socket.AF_INET6):
                return 0, 0
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
        if len(info) >= RETRANS_OFFSET + WORD_BYTES:
            (received,) = struct.unpack_from("<Q", info, RECEIVED_OFFSET)
            (queued,) = struct.unpack_from("<I", info, QUEUED_OFFSET)
            sent, again = struct.unpack_from("<QQ", info, SENT_OFFSET)
            return int(sent - again + queued), int(received)
    return 0, 0
