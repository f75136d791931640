"""A line between two processes that can be cut while both ends stay open: it takes what is sent and
passes nothing on.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading


class Proxy:
    """Listens on a port of loopback and passes everything on to another one."""

    def __init__(self, to: int) -> None:
        self.to, self.swallows, self.over = to, False, False
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])
        self.ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self.over:
            try:
                near, _ = self.door.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                continue
            self.ends += [near, far]
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with contextlib.suppress(OSError, ValueError):
            while True:
                for end in select.select([near, far], [], [], 0.5)[0]:
                    data = end.recv(1 << 16)
                    if not data:
                        raise OSError
                    if not self.swallows:
                        other[end].sendall(data)
        for end in (near, far):
            end.close()

    def close(self) -> None:
        self.over = True
        for end in (self.door, *self.ends):
            end.close()
