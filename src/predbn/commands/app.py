"""The command line: all commands together, and errors as one sentence."""

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


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"predbn {__version__}")
        raise typer.Exit


def _set_debug(requested: bool) -> None:
    if requested:
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
    """Run the command line. The exit code is 2 for a wrong argument and 1 for a failure.

    A `PredbnError` is printed as one sentence. Any other exception is a bug and shows its traceback, and so does a
    `PredbnError` with --debug or the environment variable PREDBN_DEBUG.
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
