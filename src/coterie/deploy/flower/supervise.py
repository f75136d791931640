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
from typing import TYPE_CHECKING, Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked, write_json
from coterie.core.program_cache import use_users_cache
from coterie.deploy.messages import Rejected, Reply, Request, envelope, opened

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:
    raise InvalidInput(
        "a hub and its clients need the package flwr: pip install 'coterie[flower]'."
    ) from None

if TYPE_CHECKING:
    from coterie.deploy.client import Client
    from coterie.deploy.hub import Hub
    from coterie.deploy.plan import Plan
    from coterie.deploy.site import Site

FOLDER, KEYS = "COTERIE_HUB", "COTERIE_KEYS"
RECORD = "coterie"
POLL = 0.25
LOOK = 2.0
"""Seconds between looks at who is there and who is revoked."""
AGAIN = 5.0
"""Seconds before somebody whose answer could not be used is asked again."""


class GaveUp(CoterieError):
    """The hub waited as long as the plan allows."""

    exit_code = 4


# -- messages --------------------------------------------------------------------------------------


def packed(message: Request | Reply) -> RecordDict:
    """The envelope as text, the frames as bytes: exact, and no dearer than the bytes themselves."""
    values: dict[str, Any] = {"envelope": envelope(message)}
    if message.frames:
        values["frames"] = list(message.frames)
    return RecordDict({RECORD: ConfigRecord(values)})


def unpacked(kind: type[Any], content: RecordDict) -> Any:
    """A Request or Reply. Raises Rejected, also on a sentence that was sent in its place."""
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord) or not set(record) <= {"envelope", "frames", "error"}:
        raise Rejected("the message is not one of coterie's.")
    if isinstance(error := record.get("error"), str):
        raise Refusal(_line(error))
    text, frames = record.get("envelope"), record.get("frames", [])
    if not isinstance(text, str) or not isinstance(frames, list):
        raise Rejected("the message is not one of coterie's.")
    return opened(kind, text, tuple(frames))  # type: ignore[arg-type]


class Refusal(CoterieError):
    """A client says why it cannot answer."""


# -- the hub ---------------------------------------------------------------------------------------


class Members:
    """Which of Flower's nodes is which client of the plan: by the public key it proved to have,
    never by what it says of itself.
    """

    def __init__(self, plan: Plan, keys: Path, say: Callable[[str], None]) -> None:
        self.names = (
            {name: k for k, name in enumerate(plan.clients)}
            if not isinstance(plan.clients, int)
            else {}
        )
        self.keys, self.say = keys, say
        self.refused: frozenset[int] = frozenset()
        self.present: dict[int, tuple[int, str]] = {}
        """Client → Flower's node, and since when it is there."""
        self._books = (keys / "nodes.json").is_file()
        self._revoked: Any = None

    def look(self, nodes: Iterable[Any]) -> None:
        """Who is there now, and who is revoked now."""
        from coterie.deploy.keys import authority as identities

        if self._books:
            allowed = identities.flower_keys(self.keys)
            names = {pem(key): name for name, key in allowed.items()}
            refused = {k for name, k in self.names.items() if name not in allowed}
            found = [(names.get(bytes(node.public_key)), node) for node in nodes]
        # a hub without the operator's books: the names its nodes were registered under, and the
        # federation's revocation list
        else:
            if self._revoked is None:
                self._revoked = identities.Identity.load(self.keys).revocations(self.say)
            refused = {k for name, k in self.names.items() if name in self._revoked.revoked_names()}
            found = [(node.name, node) for node in nodes]
        for k in sorted(refused - self.refused):
            self.say(
                f"{self.name(k)} is revoked, expired or was never issued keys: it is not asked and"
                " does not count from now on."
            )
        self.refused = frozenset(refused)
        mine = [(self.names[name], node) for name, node in found if name in self.names]
        self.present = {
            k: (node.node_id, node.last_activated_at) for k, node in mine if k not in refused
        }

    def name(self, k: int) -> str:
        return next(name for name, number in self.names.items() if number == k)


def pem(openssh: str) -> bytes:
    """A public key as Flower keeps it."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_public_key(openssh.encode())
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


class Asked:
    """A message that is under way."""

    def __init__(self, k: int, to: tuple[int, str], ttl: float) -> None:
        self.k, self.to, self.until = k, to, time.monotonic() + ttl


class Conductor:
    """Drives a Hub over Flower's grid."""

    def __init__(
        self,
        grid: Grid,
        hub: Hub,
        members: Members,
        say: Callable[[str], None],
        progress: Callable[..., None],
    ) -> None:
        self.grid, self.hub, self.members, self.say, self.progress = (
            grid,
            hub,
            members,
            say,
            progress,
        )
        self.rules = hub.plan.rules
        self.asked: dict[str, Asked] = {}
        self.pause: dict[int, float] = {}
        """Client → when it may be asked again after an answer that could not be used."""
        self.looked = 0.0

    def run(self) -> None:
        hub = self.hub
        if hub.finished:
            self.say(f"the run {hub.plan.name!r} is finished already, after {hub.t} rounds.")
            return
        if hub.t:
            self.say(f"going on from round {hub.t} of {hub.plan.training.rounds}.")
        while not hub.done:
            self._gather(hub.requests, f"round {hub.t}")
            before = hub.ledger.up, hub.ledger.down
            came, missing = len(hub.replies), [self.members.name(k) for k in hub.missing]
            hub.close()
            without = f", without {', '.join(missing)}" if missing else ""
            up, down = hub.ledger.up - before[0], hub.ledger.down - before[1]
            done = f"{hub.t} of {hub.plan.training.rounds} done"
            self.say(
                f"round {hub.t - 1}: {came} clients{without}; {up} bytes up, {down} down ({done})."
            )
        self._gather(hub.farewells, "the farewell")
        missing = [self.members.name(k) for k in hub.missing]
        hub.end()
        self.say(
            "finished."
            if not missing
            else f"finished; {', '.join(missing)} did not hear the last word."
        )

    def _gather(self, requests: Callable[[], dict[int, Request]], what: str) -> None:
        """Ask whoever has not answered, until all have, or the rules say that it is enough."""
        began, told = time.monotonic(), 0.0
        self.asked.clear()
        self.pause.clear()
        self._look()
        while True:
            self._send(requests)
            self._pull(what)
            waiting = [k for k in self.hub.missing if k not in self.members.refused]
            if not waiting:
                break
            waited = time.monotonic() - began
            self.progress("running", self.hub, waiting)
            if (
                self.rules.on_missing == "go-on"
                and waited >= self.rules.patience
                and (self.hub.done or self.hub.enough)
            ):
                break
            if waited >= self.rules.give_up:
                raise GaveUp(
                    f"{what}: no usable answer from {self._names(waiting)} in {waited:.0f} s; the"
                    " run is saved and goes on when started again."
                )
            if waited - told >= self.rules.patience:
                told = waited
                self.say(f"{what}: still waiting for {self._names(waiting)} after {waited:.0f} s.")
            time.sleep(POLL)
            if time.monotonic() - self.looked >= LOOK:
                self._look()
        if not self.hub.done and not any(k in self.hub.replies for k in self.hub.cohort):
            raise GaveUp(f"{what}: nobody is left who may take part.")

    def _look(self) -> None:
        self.members.look(self.grid.get_nodes())
        self.looked = time.monotonic()
        for ident, asked in list(self.asked.items()):
            # One that has come back since it was asked does not know of it any more.
            if (
                asked.k in self.members.refused
                or self.members.present.get(asked.k, asked.to) != asked.to
            ):
                del self.asked[ident]

    def _names(self, clients: Iterable[int]) -> str:
        return ", ".join(
            f"{self.members.name(k)}{'' if k in self.members.present else ' (not connected)'}"
            for k in clients
        )

    def _send(self, requests: Callable[[], dict[int, Request]]) -> None:
        now = time.monotonic()
        for ident, asked in list(self.asked.items()):
            if now > asked.until:
                del self.asked[ident]
        busy = {asked.k for asked in self.asked.values()}
        due = [
            k
            for k in self.hub.missing
            if k in self.members.present and k not in busy and now >= self.pause.get(k, 0.0)
        ]
        if not due:
            return
        wanted = requests()
        for k in due:
            # The time to live is Flower's: a node that was away does not work on what nobody waits
            # for any more.
            to = self.members.present[k]
            message = Message(
                packed(wanted[k]), to[0], "train", ttl=self.rules.patience, group_id=str(self.hub.t)
            )
            for ident in self.grid.push_messages([message]):
                if ident:
                    self.asked[ident] = Asked(k, to, self.rules.patience)

    def _pull(self, what: str) -> None:
        if not self.asked:
            return
        for message in self.grid.pull_messages(list(self.asked)):
            asked = self.asked.pop(message.metadata.reply_to_message_id, None)
            if asked is not None and asked.k not in self.hub.replies:
                self._take(asked.k, message, what)

    def _take(self, k: int, message: Message, what: str) -> None:
        name = self.members.name(k)
        if message.has_error():
            self.pause[k] = time.monotonic() + AGAIN
            self.say(f"{what}: no answer from {name}: {_flower_error(message)}; it is asked again.")
            return
        try:
            try:
                reply = unpacked(Reply, message.content)
            except Rejected:
                self.hub.reject(k)
                raise
            if not self.hub.take(k, reply):
                self.say(f"{what}: {name} has lost track and gets a whole copy.")
        except Refusal as error:
            self.pause[k] = time.monotonic() + AGAIN
            self.say(f"{what}: {name} cannot answer: {error}")
        except Rejected as error:
            self.pause[k] = time.monotonic() + AGAIN
            self.say(
                f"{what}: rejected a message of {name} ({self.hub.clients[k].rejected} so far):"
                f" {error}"
            )


def _flower_error(message: Message) -> str:
    known = {
        3: "its answer did not come in time",
        4: "its answer did not come in time",
        5: "its node is away",
    }
    return known.get(
        message.error.code,
        f"Flower says {_line(message.error.reason or 'nothing')} (code {message.error.code})",
    )


def _line(text: str) -> str:
    """What somebody else has written, fit for a log: one line, and nothing that moves a terminal's
    cursor.
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:300]


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


# -- a client --------------------------------------------------------------------------------------


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
