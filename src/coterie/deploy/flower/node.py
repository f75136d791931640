"""A client's two processes: Flower's SuperNode, and a worker that takes tasks from it and answers
them.

Flower starts a process for every message and runs in it whatever code the hub has sent along. This
worker stands in for that ("process isolation", in Flower's words): it runs coterie's ClientApp, the
one that is installed here, and never the hub's code; and it imports, reads and compiles once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.deploy.flower.supervise import Desk

WAIT = 0.2
"""Seconds between looks for a task, or for a part of a message that is still on its way."""
LATEST = 900.0
"""Seconds after which a message that has not arrived whole never will."""
LOOK = "COTERIE_LOOK"
"""Says how many seconds a SuperNode waits between looks for messages."""
PROTECTED = frozenset({"/flwr.proto.Runtime/AcquireTask"})


def connect(address: str, *interceptors: Any) -> Any:
    """The SuperNode's own interface, on this machine."""
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    return RuntimeHttpClient.from_server_address(address, True, None, [version, *interceptors])


def attend(address: str, secret: bytes, desk: Desk, say: Callable[[str], None]) -> None:
    """Answer until the SuperNode is gone, which raises."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    turn = threading.Lock()
    client = connect(
        address, SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=PROTECTED)
    )
    try:
        while True:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp"]))
            if found.HasField("task") and found.token:
                # Each in a thread: a message of a run that has ended meanwhile never comes, and
                # must not hold up the next one.
                threading.Thread(
                    target=perform, args=(address, found.token, desk, turn, say), daemon=True
                ).start()
            time.sleep(WAIT)
    finally:
        client.close()


def perform(
    address: str, token: str, desk: Desk, turn: threading.Lock, say: Callable[[str], None]
) -> None:
    """One task: a message in, a message out."""
    from flwr.app import Message
    from flwr.app.error import Error
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

    client = connect(address, RuntimeTokenHttpInterceptor(token))
    beat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    beat.start()
    began = time.monotonic()
    try:
        message, context = _pulled(client)
        try:
            with turn:
                reply, status, details = (
                    Message(desk.answer(message.content), reply_to=message),
                    SubStatus.COMPLETED,
                    "",
                )
        except (
            Exception
        ) as error:  # a bug: say so here, and let the hub know that there is no answer
            say(f"{type(error).__name__}: {error}")
            details = f"the client failed ({type(error).__name__})"
            reply, status = (
                Message(
                    Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=details),
                    reply_to=message,
                ),
                SubStatus.FAILED,
            )
        push_message(client, reply, context)
        push_task_output(client, context, status, details)
        say(f"round {message.metadata.group_id}: answered in {time.monotonic() - began:.2f} s.")
    except Exception as error:  # the hub asks again
        say(f"a message was lost: {type(error).__name__}: {error}")
    finally:
        with contextlib.suppress(RuntimeError):
            beat.stop()
        client.close()


def _pulled(client: Any) -> tuple[Any, Any]:
    """The message and its context.

    As Flower does it, but it does not wait a whole second for a part that is a moment late; and no
    code is taken.
    """
    from flwr.app import Message
    from flwr.common.serde import context_from_proto
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullTaskInputRequest
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_confirm_message_received_fn_protobuf,
        make_pull_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree

    context = context_from_proto(client.PullTaskInput(PullTaskInputRequest()).context)
    tree = client.PullMessages(PullAppMessagesRequest()).message_object_trees[0]
    node = Node(node_id=context.node_id)
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, context.run_id),
        make_confirm_message_received_fn_protobuf(
            client.ConfirmMessageReceived, node, context.run_id
        ),
        return_type=Message,
        max_time=LATEST,
        max_tries_per_object=None,
        initial_backoff=WAIT,
        backoff_cap=1.0,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message, context


def supernode() -> None:
    """Flower's SuperNode with the arguments of this process, which may look for messages more often
    than every three seconds.
    """
    pause = float(os.environ.get(LOOK, "3"))
    loop = importlib.import_module("flwr.supernode.start_client_internal")
    clock = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    loop.__dict__["time"] = SimpleNamespace(
        **clock | {"sleep": lambda seconds: time.sleep(min(seconds, pause))}
    )
    importlib.import_module("flwr.supernode.cli.flower_supernode").flower_supernode()


def main() -> None:
    """`python -m coterie.deploy.flower.node`, started by `coterie client join`."""
    import httpx

    from coterie.core.program_cache import use_users_cache
    from coterie.deploy.flower.supervise import Desk, sites_of

    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--secret", required=True, type=Path)
    parser.add_argument("--sites", required=True)
    given = parser.parse_args()

    def say(sentence: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not silence the answer as well
            print(sentence, file=sys.stderr, flush=True)

    use_users_cache()
    desk = Desk(sites_of(given.sites), say)
    warned = 0.0
    while True:  # for as long as whoever started this wants
        try:
            attend(given.address, given.secret.read_bytes(), desk, say)
        except httpx.HTTPError as error:
            if time.monotonic() - warned > 60:
                warned = time.monotonic()
                say(f"the SuperNode does not answer ({type(error).__name__}); trying again.")
        time.sleep(1.0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["supernode"]:
        del sys.argv[1]
        supernode()
    else:
        main()
