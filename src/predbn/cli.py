"""The command line: thin, over the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .commands.diagnose import diagnose_command
from .commands.engines import engine_on
from .commands.evaluate import evaluate_command
from .commands.output import Json, Quiet
from .commands.paper import paper_app
from .commands.results import results_app
from .commands.zoo import zoo_command
from .data.command import data_app
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
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("predbn-demo"),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show the method on real images and trained networks: no download, no GPU, about a minute.

    Example: predbn demo
    """
    from .demo import run

    run(out, engine=engine_on(device), quiet=quiet, as_json=as_json)


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
    """Run the command line: exit code 2 for a wrong argument, 1 for a failure, in one sentence."""
    try:
        app()
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
