"""Flower as the carrier between a hub and its clients: one ServerApp and one ClientApp for every
method.

The hub's machine has one folder (the environment variable COTERIE_HUB says where): plans/, a folder
per run, and hub.json, which says where the keys lie (or COTERIE_KEYS does). The run config names
only things inside it, because Flower shows the run config to every client. A client's node config
says where its site files are; it never leaves the client.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked, write_json
from coterie.core.program_cache import use_users_cache
from coterie.deploy.flower.conductor import Conductor
from coterie.deploy.flower.library import (
    ClientApp,
    ConfigRecord,
    Context,
    Grid,
    Message,
    RecordDict,
    ServerApp,
)
from coterie.deploy.flower.members import Members
from coterie.deploy.flower.records import RECORD, packed, unpacked
from coterie.deploy.messages import Request

if TYPE_CHECKING:
    from coterie.deploy.client import Client
    from coterie.deploy.hub import Hub
    from coterie.deploy.site import Site


FOLDER, KEYS = "COTERIE_HUB", "COTERIE_KEYS"


class Log:
    """Sentences to the terminal and to a file; a run's progress to another."""

    def __init__(self, folder: Path, name: str, run: int) -> None:
        self.log, self.state, self.run = (
            folder / f"{name}.log",
            folder / f"{name}.progress.json",
            run,
        )
        self.at = 0.0

    def say(self, sentence: str) -> None:
        print(sentence, flush=True)
        with self.log.open("a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")

    def progress(
        self, state: str, hub: Hub | None = None, waiting: Iterable[int] = (), sentence: str = ""
    ) -> None:
        if state == "running" and time.monotonic() - self.at < 1.0:
            return
        self.at = time.monotonic()
        names = (
            hub.plan.clients if hub is not None and not isinstance(hub.plan.clients, int) else ()
        )
        now = (
            {
                "round": hub.t,
                "up": hub.ledger.up,
                "down": hub.ledger.down,
                "waiting": [names[k] for k in waiting],
            }
            if hub is not None
            else {}
        )
        write_json(
            self.state,
            {
                "state": state,
                "pid": os.getpid(),
                "run": str(self.run),
                "at": time.time(),
                "sentence": sentence,
                **now,
            },
        )


server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def _serve(grid: Grid, context: Context) -> None:
    base = Path(os.environ.get(FOLDER, ""))
    if not os.environ.get(FOLDER) or not base.is_dir():
        raise InvalidInput(
            "the hub's folder is not known: start the SuperLink with `coterie hub up`, or set"
            f" {FOLDER}."
        )
    name = str(context.run_config.get("plan", ""))
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name):
        raise InvalidInput(
            f"the run config's plan is {name!r}, but must be the name of a plan in the hub's"
            " folder."
        )
    log = Log(base, name, grid.run.run_id)
    log.progress("starting")
    try:
        serve(grid, base, name, log)
    except Exception as error:
        sentence = (
            str(error) if isinstance(error, CoterieError) else f"{type(error).__name__}: {error}"
        )
        log.say(f"stopped: {sentence}")
        log.progress("failed" if isinstance(error, CoterieError) else "broken", sentence=sentence)
        raise
    log.progress("finished")


def serve(grid: Grid, base: Path, name: str, log: Log) -> None:
    """Run the plan `name` of the hub's folder to its end, from wherever it was left."""
    use_users_cache()
    from coterie.deploy.hub import Hub
    from coterie.deploy.plan import Plan

    keys = Path(os.environ.get(KEYS) or json.loads((base / "hub.json").read_text())["keys"])
    plan = Plan.from_file(base / "plans" / f"{name}.toml")
    lock = base / "locks" / name
    lock.mkdir(parents=True, exist_ok=True)
    with locked(lock):
        hub = Hub(plan, base / name, say=log.say)
        Conductor(grid, hub, Members(plan, keys, log.say), log.say, log.progress).run()


class Desk:
    """A client's side: the site files of one machine, one per plan; answers whichever plan is asked
    about.
    """

    def __init__(self, sites: Iterable[Path], say: Callable[[str], None] = print) -> None:
        self.sites, self.say = list(sites), say
        self._clients: dict[str, Client] = {}

    def _client(self, fingerprint: str) -> Client:
        if fingerprint not in self._clients:
            from coterie.deploy.client import Client
            from coterie.deploy.messages import check_plan
            from coterie.deploy.site import Site

            known = [Site.from_file(path) for path in self.sites]
            site: Site | None = next((s for s in known if s.plan.fingerprint == fingerprint), None)
            if site is None:
                check_plan(known[0].plan.fingerprint, fingerprint)
            assert site is not None
            work = site.worker()
            self._clients[fingerprint] = Client(
                site.plan,
                site.number,
                work,
                site.folder,
                share_scores=site.share_scores,
                say=self.say,
            )
        return self._clients[fingerprint]

    def answer(self, content: RecordDict) -> RecordDict:
        """Never raises for what a user or a hub can do wrong: the sentence is the answer."""
        fingerprint = ""
        try:
            request: Request = unpacked(Request, content)
            fingerprint = request.plan
            reply = self._client(fingerprint).answer(request)
            return packed(reply)
        except (CoterieError, OSError) as error:
            self._clients.pop(fingerprint, None)  # what is on disk counts
            self.say(f"not answered: {error}")
            return RecordDict({RECORD: ConfigRecord({"error": _without_paths(str(error))})})


def _without_paths(sentence: str) -> str:
    """The hub need not know how a client's disk looks."""
    return re.sub(r"(?:/[^/\s'\":,;]+)+/([^/\s'\":,;]+)", r"…/\1", sentence)[:500]


def sites_of(text: str) -> list[Path]:
    """The node config's `sites`: paths, separated as in PATH."""
    paths = [Path(part) for part in text.split(os.pathsep) if part]
    if not paths:
        raise InvalidInput('the node config has no sites; it must say sites="/path/of/site.toml".')
    return paths


@client_app.train()
def _answer(message: Message, context: Context) -> Message:
    use_users_cache()
    desk = Desk(sites_of(str(context.node_config.get("sites", ""))))
    with (
        contextlib.redirect_stdout(None)
        if os.environ.get("COTERIE_QUIET")
        else contextlib.nullcontext()
    ):
        return Message(desk.answer(message.content), reply_to=message)
