"""`coterie keys`: identities for real federations."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.core.errors import InvalidInput
from coterie.report.units import days_text

keys_app = typer.Typer(
    help="Identities for real federations: a CA of your own, and a folder of keys for each node.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path,
    typer.Argument(
        help=(
            "The operator's folder, made by `coterie keys init`; it holds the CA's key and stays"
            " with you."
        )
    ),
]
COLOURS = {"valid": "green", "expires soon": "yellow", "expired": "red", "revoked": "red"}


@keys_app.callback()
def _group() -> None:
    """Identities for real federations: a CA of your own, and a folder of keys for each node."""


def _print(sentence: str) -> None:
    Console().print(sentence, highlight=False, markup=False, soft_wrap=True)


@keys_app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder, readable by you alone.")],
    name: Annotated[str, typer.Option(help="The federation's name.")],
    days: Annotated[int, typer.Option(help="How long the CA is valid.")] = 3650,
) -> None:
    """Make a federation's certificate authority (CA).

    Example: coterie keys init keys --name lab
    """
    from coterie.deploy.keys import authority as keys

    ca = keys.init(folder, name, days)
    _print(
        f"The CA of {ca.name!r} is in {folder}, valid until {ca.expires:%Y-%m-%d}. Keep a copy of"
        " the folder; its ca.key is for nobody else."
    )
    _print(
        f"Next: coterie keys kit {folder} plan.toml --hub its.dns.name:9092 for a hub and its"
        f" clients, or coterie keys issue {folder} NAME --host its.dns.name for each node."
    )


@keys_app.command()
def issue(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The node's name: a-z, 0-9 and '-'.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="A DNS name under which others reach it (repeat)."),
    ] = None,
    ips: Annotated[
        list[str] | None,
        typer.Option("--ip", help="An IP address under which others reach it (repeat)."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificate is valid.")] = 365,
    role: Annotated[
        str | None,
        typer.Option(
            help="hub, client or peer (default: client; renewed: as before). A client's keys are"
            " for calling only; who is called, such as a Dask scheduler, is a peer.",
            show_default=False,
        ),
    ] = None,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help=(
                "Replace the node's keys before they expire. If they were lost or stolen, revoke"
                " them and issue another name."
            ),
        ),
    ] = False,
) -> None:
    """Make a node's keys: the folder to carry to its machine.

    Example: coterie keys issue keys hospital-1 --host fl.hospital-1.org --role peer
    """
    from coterie.deploy.keys import authority as keys

    node_folder = keys.issue(folder, name, hosts or (), ips or (), days, role, renew=renew)
    _print(
        f"Carry the folder {node_folder} to the machine of {name!r}, by a way that nobody else can"
        " read; then delete its private keys here."
    )
    if not hosts and not ips and not renew:
        _print(
            "No --host or --ip was given: others can reach it as localhost and 127.0.0.1 only"
            " (enough for a client, which only calls)."
        )
    if renew:
        _print(f"The former certificate is revoked. {_spread(folder)}")


@keys_app.command()
def kit(
    folder: Folder,
    plan: Annotated[Path, typer.Argument(help="The plan, with the names of its clients.")],
    hub: Annotated[str, typer.Option(help="host:port by which clients reach the hub.")] = "",
    peers: Annotated[
        Path | None,
        typer.Option(
            help="Without a hub: a file with \\[\\[peers]] (name, place) and \\[\\[edges]]"
            " (between, weight)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write kits.")] = Path("kits"),
    days: Annotated[int, typer.Option(help="How long new certificates are valid.")] = 365,
) -> None:
    """Write a join kit for the hub and for every client of a plan, or for every peer: one file
    each, with all that the machine needs. Keys are issued to those that have none.

    Example: coterie keys kit keys plan.toml --hub hub.example.org:9092
    """
    if (peers is None) == (not hub):
        raise InvalidInput(
            "neither --hub nor --peers is given, but one of them must be."
            if peers is None
            else f"--hub {hub} and --peers {peers} are given, but must not be together."
        )
    if peers is not None:
        from coterie.deploy.keys.peer_kits import write_peer_kits

        made = write_peer_kits(folder, plan, peers, out, days)
    else:
        from coterie.deploy.keys.kits import write_kits

        made = write_kits(folder, plan, hub, out, days)
    _print(
        f"{len(made)} kits are in {out}. Carry each to its machine, by a way that nobody else can"
        f" read: {', '.join(path.name for path in made)}."
    )
    if peers is not None:
        _print(f"A peer: coterie peer {made[-1].name} data.csv")
        return
    _print(f"The hub: coterie hub up --keys {made[0].name} --folder hub --host 0.0.0.0")
    _print(f"A client: coterie client join {made[-1].name} data.csv")


@keys_app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(help="Where to make the node's folder of keys.")],
    certificate: Annotated[Path, typer.Option("--cert", help="Its certificate (PEM).")],
    key: Annotated[Path, typer.Option("--key", help="Its private key (PEM, not encrypted).")],
    ca: Annotated[Path, typer.Option("--ca", help="The CA that issued it directly (PEM).")],
    role: Annotated[str, typer.Option(help="hub, client or peer.")] = "client",
    crl: Annotated[
        Path | None, typer.Option("--crl", help="The CA's revocation list (PEM).")
    ] = None,
) -> None:
    """Use a certificate of your own public key infrastructure; its common name is the node's name.

    Example: coterie keys import ward-a --cert ward-a.pem --key ward-a.key --ca ca.pem
    """
    from coterie.deploy.keys.own import bring

    who = bring(folder, certificate, key, ca, role, crl=crl)
    _print(f"{folder} has the keys of the {who.role} {who.name!r}, until {who.expires:%Y-%m-%d}.")
    if crl is None:
        _print(f"No list of the revoked was given: put one into {folder / 'crl.pem'} when needed.")


@keys_app.command("list")
def list_(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Who has keys, until when, and who is revoked."""
    from coterie.deploy.keys import authority as keys

    ca, nodes, now = keys.Authority.load(folder), keys.listed(folder), datetime.now(UTC)
    if as_json:
        rows = [i.plain() | {"status": i.status(now)} for i in nodes]
        typer.echo(
            json.dumps(
                {"federation": ca.name, "ca_expires": ca.expires.isoformat(), "nodes": rows},
                indent=2,
            )
        )
        return
    table = Table(
        "name",
        "role",
        "hosts",
        "expires",
        "status",
        title=f"{ca.name}: CA expires {_when(ca.expires, now)}",
        title_justify="left",
    )
    for i in nodes:
        status = i.status(now)
        reason = f" ({i.reason})" if i.revoked is not None and i.reason != "unspecified" else ""
        hosts = escape(", ".join((*i.hosts, *i.ips)))
        table.add_row(
            i.name, i.role, hosts, _when(i.expires, now), f"[{COLOURS[status]}]{status}[/]{reason}"
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@keys_app.command()
def revoke(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The node to refuse from now on.")],
    reason: Annotated[
        str,
        typer.Option(
            help=(
                "unspecified, key-compromise, affiliation-changed, cessation-of-operation or"
                " privilege-withdrawn."
            )
        ),
    ] = "unspecified",
) -> None:
    """Refuse a node from now on. Its name stays refused: should it come back, issue it another.

    Example: coterie keys revoke keys hospital-1 --reason key-compromise
    """
    from coterie.deploy.keys import authority as keys

    issued = keys.revoke(folder, name, reason)
    _print(f"{name!r} is revoked since {issued.revoked:%Y-%m-%d %H:%M} UTC. {_spread(folder)}")


def _spread(folder: Path) -> str:
    return (
        f"The list {folder / 'crl.pem'} and its copies in {folder / 'nodes'} are new, but nothing"
        " was sent: copy crl.pem into the hub's folder of keys, which passes it on to its clients,"
        " or into that of every peer; it is read again every round."
    )


def _when(moment: datetime, now: datetime) -> str:
    left = "expired" if moment <= now else days_text((moment - now).total_seconds())
    return f"{moment:%Y-%m-%d} ({left})"
