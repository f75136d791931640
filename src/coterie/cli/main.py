"""`coterie`: the commands, each in a module of its own. No logic here: they parse, call, print."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
from typing import Annotated, Any, get_type_hints

import typer
from typer.main import get_command

from coterie.cli import (
    chaos,
    check,
    data,
    deploy,
    doctor,
    hub,
    keys,
    look,
    models,
    new,
    peer,
    report,
    reproduce,
    running,
    train,
    tune,
    watch,
)
from coterie.cli import nearest as wrong_word
from coterie.cli.console import err, say
from coterie.cli.notices import print_notices
from coterie.core.crew import Lost
from coterie.core.errors import CoterieError
from coterie.core.parent import ends_with_parent
from coterie.core.program_cache import use_users_cache

EXIT_CODES = (
    "Exit codes: 0 done; 1 done, and the answer is no (check, doctor, watch, deploy-demo); 2 wrong"
    " input, or something that is refused or missing; 3 a run diverged; 4 a machine was waited for"
    " in vain; 130 stopped by Ctrl-C or SIGTERM. With --json the result is one JSON document on"
    " standard output."
)
app = typer.Typer(
    name="coterie",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Train [b]a model of its own for every client[/b] of a federation, learnt together with its"
        " kin, without moving their data.\n\nStart with [b]coterie demo[/b]; see what there is with"
        " [b]coterie list[/b]; read about a method with [b]coterie show fedu[/b]."
    ),
)
app.command()(train.demo)
app.command()(running.run)
app.command()(running.resume)
app.command()(running.launch)
app.command()(train.compare)
app.command()(train.attack)
app.command()(report.report)
app.command()(report.plot)
app.command()(watch.watch)
app.command()(watch.ui)
app.command()(tune.tune)
app.command()(reproduce.reproduce)
app.command()(check.check)
app.command("list")(look.list_)
app.command()(look.show)
app.command()(doctor.doctor)
app.command()(models.export)
app.command()(models.predict)
app.command()(models.adapt)
app.add_typer(new.app, name="new")
app.add_typer(data.app, name="data")
app.add_typer(keys.keys_app, name="keys")
app.add_typer(hub.hub_app, name="hub")
app.add_typer(hub.client_app, name="client")
app.command()(peer.peer)
app.command()(deploy.status)
app.command("deploy-demo")(deploy.deploy_demo)
app.command("chaos")(chaos.chaos)


def _version(asked: bool) -> None:
    if asked:
        from coterie import __version__

        typer.echo(f"coterie {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _whole(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version, and end.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What all commands share; the help of the app is above."""


def command() -> Any:
    """The whole command, with the help of its arguments: click 8.5 drops what typer 0.20 gives."""
    whole = get_command(app)
    _restore_help(whole)
    return whole


def _restore_help(one: Any) -> None:
    for inner in getattr(one, "commands", {}).values():
        _restore_help(inner)
    if one.callback is None:
        return
    hints: dict[str, Any] = {}
    with contextlib.suppress(NameError):  # of names that only type checkers see
        hints = get_type_hints(inspect.unwrap(one.callback), include_extras=True)
    for parameter in one.params:
        for fact in getattr(hints.get(parameter.name), "__metadata__", ()):
            if getattr(parameter, "help", None) is None:
                parameter.help = getattr(fact, "help", None)


def start() -> None:
    """A process's entry point.

    Where Zenoh was loaded the process ends without Python's own end: Zenoh's threads may still call
    back while interpreter and library are taken down, and abort it ("exception not rethrown").
    Everything is closed and written by then.
    """
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    if "zenoh" not in sys.modules:
        sys.exit(code)  # type: ignore[arg-type]
    if isinstance(code, str):
        print(code, file=sys.stderr)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main() -> None:
    """The command line: one sentence and a non-zero exit for everything that goes wrong."""
    try:
        ends_with_parent()
        use_users_cache()
        print_notices(say)
        # The code of `typer.Exit`, which is not raised here.
        code = command()(prog_name="coterie", standalone_mode=False)
        if isinstance(code, int) and code:
            sys.exit(code)
    except CoterieError as error:
        err.print(f"coterie: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        if isinstance(error, Lost):  # what JAX does at the end would wait for the others
            os._exit(error.exit_code)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        err.print("coterie: stopped at once; what the last checkpoint holds is safe.", style="red")
        sys.exit(130)
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")) and hasattr(
            error, "format_message"
        ):
            if told := wrong_word.sentence(error):  # nothing where help was printed
                err.print(
                    f"coterie: {told}", style="red", highlight=False, markup=False, soft_wrap=True
                )
            sys.exit(2)
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            err.print(
                "coterie: this takes more memory than there is; lower training.batch_size,"
                " training.clients_at_once or training.eval_at_once.",
                style="red",
                soft_wrap=True,
            )
            sys.exit(2)
        raise
