"""What a closed session leaves behind.

A session that listens can be closed while somebody is still shaking hands with it. Zenoh (1.10)
then completes the handshake all the same, and keeps the link alive, to a session that is no more:
who is at the other end has a link over which nothing ever comes, and no reason to call again. So
every such connection is hung up on; whoever it was calls again and finds the next session.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

OPEN_FILES = Path("/dev/fd")
"""The open files of this process, by number; Windows has no such folder, and nothing is done there.
"""


def hang_up(endpoint: str) -> int:
    """Shut all connections of this process that came in at this endpoint (`tls/host:port`, with or
    without options); returns how many there were.
    """
    port = int(endpoint.partition("#")[0].rpartition(":")[2])
    try:
        numbers = [int(path.name) for path in OPEN_FILES.iterdir()]
    except OSError:
        return 0
    return sum(_shut(number, port) for number in numbers)


def _shut(number: int, port: int) -> bool:
    """Whether this was such a connection. Zenoh's threads may close it at any time."""
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        with socket.socket(fileno=os.dup(number)) as found:
            if (
                found.family in (socket.AF_INET, socket.AF_INET6)
                and found.type == socket.SOCK_STREAM
                and found.getsockname()[1] == port
            ):
                found.shutdown(socket.SHUT_RDWR)
                return True
    return False
