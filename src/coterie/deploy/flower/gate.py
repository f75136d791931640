"""What the network sees of a hub."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.keys import authority as identities

FLEET = "/v1/fleet/"
LARGEST = 1 << 30
"""Bytes of one part of a message that the gate lets through."""


class Gate:
    """What the network sees of a hub: TLS, and of the SuperLink's interfaces only the one for
    nodes, which asks for their signatures.

    Flower serves all its interfaces on one port, and without its commercial edition anybody who
    reaches it may register nodes and submit code.
    """

    def __init__(
        self, host: str, port: int, identity: identities.NodeIdentity, address: str, ca: Path
    ) -> None:
        import uvicorn

        self.address, self.ca = address, ca
        config = uvicorn.Config(
            self._answer,
            host=host,
            port=port,
            ssl_certfile=str(identity.certificate),
            ssl_keyfile=str(identity.key),
            log_level="critical",
            interface="asgi3",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self._client: Any = None

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        import httpx

        async def reply(
            status: int, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b""
        ) -> None:
            await send({"type": "http.response.start", "status": status, "headers": list(headers)})
            await send({"type": "http.response.body", "body": body})

        path = scope.get("path", "")
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or not path.startswith(FLEET)
            or ".." in path
        ):
            await reply(404)
            return
        body, more = bytearray(), True
        while more:
            part = await receive()
            if part["type"] == "http.disconnect":
                return
            body += part.get("body", b"")
            more = part.get("more_body", False)
            if len(body) > LARGEST:
                await reply(413)
                return
        if self._client is None:
            import ssl

            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(cafile=str(self.ca)),
                timeout=60.0,
                trust_env=False,
            )
        dropped = {b"host", b"connection", b"transfer-encoding", b"content-length"}
        headers = [(k, v) for k, v in scope["headers"] if k.lower() not in dropped]
        try:
            got = await self._client.post(
                f"https://{self.address}{path}", content=bytes(body), headers=headers
            )
        except httpx.HTTPError:
            await reply(503)  # nodes try again
            return
        kept = [
            (k.lower(), v)
            for k, v in got.headers.raw
            if k.lower() not in dropped | {b"content-encoding"}
        ]
        await reply(got.status_code, kept, got.content)

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    def open(self) -> None:
        try:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind((self.server.config.host, self.server.config.port))
        except OSError as error:
            where = f"{self.server.config.host}:{self.server.config.port}"
            raise InvalidInput(
                f"nobody can listen on {where}: {error.strerror or error}."
            ) from None
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(3.0)
