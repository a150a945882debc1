"""``perfbisect``: every command, and the one place where errors become exit codes.

Exit codes: 0 answered, 1 not reproduced or inconclusive (also: out of budget, cancelled), 2 bad
input, 3 failed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perfbisect.commands import (
    alerting,
    archiving,
    cleaning,
    database,
    demonstrate,
    hosts,
    machine,
    nightly,
    remote,
    reporting,
    search,
    serving,
    simulating,
    tokens,
    trying,
    working,
)
from perfbisect.commands.options import say
from perfbisect.errors import InternalError, PerfbisectError
from perfbisect.report import printable


class Commands(TyperGroup):
    """The commands, with the messages of wrong values in plain words."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Typer hands on what pydantic says, with a prefix that tells nobody anything.
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="perfbisect",
    cls=Commands,
    help="Find every commit that changed a benchmark, prove each one, keep all the evidence.",
    epilog="Exit codes: 0 answered, 1 not reproduced or inconclusive, 2 bad input, 3 failed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"perfbisect {version('perfbisect')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what goes on inside, on standard error.")
    ] = False,
) -> None:
    """Find every commit that changed a benchmark, prove each one, keep all the evidence."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


app.command("bisect")(search.bisect)
app.command("try")(trying.try_)
app.command("demo")(demonstrate.demo)
app.command("serve")(serving.serve)
app.command("worker")(working.worker)
app.command("simulate")(simulating.simulate)
app.command("doctor")(machine.doctor)
app.command("submit")(remote.submit)
app.command("status")(remote.status)
app.command("watch")(remote.watch)
app.command("cancel")(remote.cancel)
app.command("alert")(alerting.alert)
app.command("report")(reporting.report)
app.command("export")(search.export)
app.command("fetch-archives")(archiving.fetch_archives)
app.command("gc")(cleaning.gc)
app.add_typer(database.app, name="db")
app.add_typer(tokens.app, name="token")
app.add_typer(hosts.app, name="host")
app.add_typer(nightly.app, name="nightly")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code.

    Args:
        arguments: None: those that the process was started with.
    """
    try:
        app(list(arguments) if arguments is not None else None)
    except PerfbisectError as error:
        say(f"perfbisect: {_message(error)}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("perfbisect: interrupted")
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read the output (head, less) is gone; the interpreter must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        # Python's own exit code would say "no answer".
        logging.getLogger(__name__).exception("unforeseen error")
        say(f"perfbisect: {printable(f'{type(error).__name__}: {error}')} (a mistake of ours)")
        sys.exit(InternalError.exit_code)


def _message(error: PerfbisectError) -> str:
    """Return an error's message; its lines stay lines, but nothing else a terminal would obey."""
    return "\n".join(printable(line) for line in error.message.splitlines())
