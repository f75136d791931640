"""To a hub that is up: the SuperLink's control interface, as `flwr` uses it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.flower.processes import Failed


class SuperLinkControl:
    """The SuperLink's control interface, as `flwr` uses it.

    It knows no accounts: whoever reaches it may run code, so only this machine does.
    """

    def __init__(self, address: str, ca: Path) -> None:
        from flwr.supercore.control.control_http_client import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        self.client = ControlHttpClient.from_server_address(address, False, str(ca), [version])

    @classmethod
    def of(cls, folder: Path) -> SuperLinkControl:
        facts = read_hub(folder)
        return cls(facts["address"], Path(facts["ca"]))

    def nodes(self) -> dict[bytes, int]:
        """Public key → node, of those that are registered."""
        from flwr.proto.control_pb2 import ListNodesRequest

        return {
            bytes(n.public_key): n.node_id
            for n in self.client.ListNodes(ListNodesRequest()).nodes_info
            if n.status != "unregistered"
        }

    def register(self, name: str, key: bytes) -> None:
        from flwr.proto.control_pb2 import RegisterNodeRequest

        self.client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def unregister(self, node: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self.client.UnregisterNode(UnregisterNodeRequest(node_id=node))

    def start(self, app: Path, **config: str) -> int:
        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        content = build_fab_from_disk(app)
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        started = self.client.StartRun(
            StartRunRequest(fab=fab, override_config=user_config_to_proto(dict(config)))
        )
        if not started.HasField("run_id"):
            raise Failed(
                "the SuperLink did not start the run; its log is flower/superlink.log in the hub's"
                " folder."
            )
        return int(started.run_id)

    def status(self, run: int) -> tuple[str, str, str]:
        """("pending", "starting", "running" or "finished"; "completed", "failed" or "stopped";
        details).
        """
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self.client.ListRuns(ListRunsRequest(run_id=run)).run_dict
        if run not in found:
            return "finished", "failed", "the SuperLink does not know the run"
        status = found[run].status
        return status.status, status.sub_status, status.details

    def stop(self, run: int) -> None:
        from flwr.proto.control_pb2 import StopRunRequest

        self.client.StopRun(StopRunRequest(run_id=run))

    def close(self) -> None:
        self.client.close()


def unreachable() -> tuple[type[Exception], ...]:
    """What the control interface raises when the SuperLink is away or unwell."""
    import httpx

    return (httpx.HTTPError,)


def read_hub(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((folder / "hub.json").read_text())
        return facts
    except (OSError, ValueError):
        raise InvalidInput(
            f"no hub was started in {str(folder)!r}; start one with `coterie hub up --keys KEYS"
            f" --folder {folder}`."
        ) from None
