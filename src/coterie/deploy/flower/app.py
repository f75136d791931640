"""A Flower app for every method: a ServerApp that is the hub of a plan, a ClientApp that answers.

For those who run Flower already: `flwr run` starts it, and Flower's own commands do all the rest
(docs/deploy-flower.md). The run config says where the plan and the hub's folder lie on the hub's
machine. A client's node config says where its site files are; it never leaves the client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import pathsep
from pathlib import Path

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked, make_folder, own_folder
from coterie.core.program_cache import use_users_cache
from coterie.deploy.flower.conductor import Conductor
from coterie.deploy.flower.library import ClientApp, Context, Grid, Message, RecordDict, ServerApp
from coterie.deploy.flower.records import packed, refused, unpacked
from coterie.deploy.messages import Request, check_plan

server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def _serve(grid: Grid, context: Context) -> None:
    use_users_cache()
    given = {key: str(context.run_config.get(key, "")) for key in ("plan", "folder")}
    for key, value in given.items():
        if not Path(value).is_absolute():
            raise InvalidInput(
                f"the run config's {key} is {value!r}, but must be an absolute path on the hub's"
                " machine."
            )
    keys = str(context.run_config.get("keys", ""))
    serve(grid, Path(given["plan"]), Path(given["folder"]), Path(keys) if keys else None)


def serve(grid: Grid, file: Path, folder: Path, keys: Path | None = None) -> None:
    """Run a plan to its end, from wherever it was left; in the folder `keys` lie ca.pem and
    crl.pem, by which names are refused.
    """
    from coterie.deploy.hub import Hub
    from coterie.deploy.log import Log
    from coterie.deploy.plan import Plan

    plan = Plan.from_file(file)
    lock = folder / "locks" / plan.name
    make_folder(lock, force=True)
    with locked(lock):
        log = Log(folder / f"{plan.name}.log", lambda sentence: print(sentence, flush=True))
        revoked: Callable[[], frozenset[str]] = frozenset
        if keys is not None:
            from coterie.deploy.keys.identity import Revocations

            revoked = Revocations(keys / "ca.pem", keys / "crl.pem", log.say).revoked_names
        try:
            Conductor(grid, Hub(plan, folder / plan.name, say=log.say), log.say, revoked).run()
        except CoterieError as error:
            log.say(f"stopped: {error}")
            raise


def answer(
    paths: Sequence[Path],
    content: RecordDict,
    say: Callable[[str], None] = print,
    *,
    newcomer: bool = False,
) -> RecordDict:
    """What a client says to a request of whichever plan it has a site file for.

    newcomer: also when its folder was lost or set back.

    Never raises for what a user or a hub can do wrong: the sentence is the answer.
    """
    from coterie.deploy.client import Client
    from coterie.deploy.sites import of_one_client

    try:
        request: Request = unpacked(Request, content)
        known = {site.plan.fingerprint: site for site in of_one_client(paths)}
        if request.plan not in known:
            check_plan(next(iter(known)), request.plan)
        site = known[request.plan]
        own_folder(site.folder)
        with locked(site.folder):  # Flower may start a process beside one that still works
            client = Client(
                *(site.plan, site.number, site.worker(), site.folder),
                share_scores=site.share_scores,
                newcomer=newcomer,
                say=say,
            )
            return packed(client.answer(request))
    except (CoterieError, OSError) as error:
        say(f"not answered: {error}")
        return refused(error)


def sites_of(text: str) -> list[Path]:
    """The node config's `sites`: paths, separated as in PATH."""
    paths = [Path(part) for part in text.split(pathsep) if part]
    if not paths:
        raise InvalidInput('the node config has no sites; it must say sites="/path/of/site.toml".')
    return paths


@client_app.train()
def _answer(message: Message, context: Context) -> Message:
    use_users_cache()
    paths = sites_of(str(context.node_config.get("sites", "")))
    newcomer = bool(context.node_config.get("newcomer", False))
    return Message(answer(paths, message.content, newcomer=newcomer), reply_to=message)
