"""The command line: puts the commands together and turns errors into one sentence."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from . import __version__
from .commands.corrupt import corrupt_command
from .commands.data import data_app
from .commands.demo import demo_command
from .commands.diagnose import diagnose_command
from .commands.evaluate import evaluate_command
from .commands.paper import paper_app
from .commands.results import results_app
from .commands.train import train_app, tune_app
from .commands.zoo import zoo_command
from .common import PredbnError

app = typer.Typer(
    help="Prediction-time batch normalisation for any PyTorch model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

DEBUG = "PREDBN_DEBUG"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"predbn {__version__}")
        raise typer.Exit


def _set_debug(wanted: bool) -> None:
    if wanted:
        os.environ[DEBUG] = "1"


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Prediction-time batch normalisation for any PyTorch model."""


app.command("demo")(demo_command)
app.command("evaluate")(evaluate_command)
app.command("corrupt")(corrupt_command)
app.command("diagnose")(diagnose_command)
app.command("zoo")(zoo_command)
app.add_typer(results_app, name="results")
app.add_typer(paper_app, name="paper")
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
app.add_typer(tune_app, name="tune")


def main() -> None:
    """Run the command line. Exit code 2 for a wrong argument, 1 for a failure, each explained in one sentence.

    Only `PredbnError` is turned into a sentence: anything else is a bug and shows its traceback, as does every error
    with --debug or with the environment variable PREDBN_DEBUG.
    """
    try:
        app()
    except PredbnError as error:
        if os.environ.get(DEBUG):
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
