"""The command line: thin, over the library."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import __version__
from .commands.evaluate import evaluate_command
from .commands.paper import paper_app
from .data.command import data_app
from .diagnostics.command import diagnose_command
from .shifts.command import corrupt_command
from .training.command import train_app, tune_app

app = typer.Typer(
    help="Prediction-time batch normalisation for any PyTorch model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"predbn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Prediction-time batch normalisation for any PyTorch model."""


@app.command()
def demo() -> None:
    """Show the method on a small network trained in seconds on made data.

    Example: predbn demo
    """
    from .demo import run

    run()


app.command("evaluate")(evaluate_command)
app.command("corrupt")(corrupt_command)
app.add_typer(paper_app, name="paper")
app.command("diagnose")(diagnose_command)
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
app.add_typer(tune_app, name="tune")


def main() -> None:
    """Run the command line: exit code 2 for a wrong argument, 1 for a failure, in one sentence."""
    try:
        app()
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
