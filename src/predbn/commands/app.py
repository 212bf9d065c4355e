"""All commands together."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from predbn import __version__

from .calibrate import calibrate_command
from .corrupt import corrupt_command
from .data import data_app
from .demo import demo_command
from .doctor import doctor_command
from .evaluate import evaluate_command
from .fields import PlanCommand
from .help import App, Group
from .onnx import onnx_app
from .os_errors import DEBUG
from .paper import paper_app
from .predict import predict_command
from .recompute import recompute_command
from .results import results_app
from .serve import serve_command
from .train import train_app
from .zoo import zoo_command


class _Commands(Group):
    """The commands, with rules that hold for all of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse empty arguments: an empty path would mean the current folder."""
        for before, argument in zip(["", *args], args, strict=False):
            name, equals, value = argument.partition("=")
            option = before if not argument else name
            if not argument or (name.startswith("--") and equals and not value):
                what = f"the value of {option}" if option.startswith("-") else "an argument"
                raise typer.BadParameter(f"{what} is empty: give it a value, or leave it out.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Keep the traceback of an EOFError: for Typer it is the end of what the user types, and says "Aborted."."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError("a file ended too early") from error


app = App("Prediction-time batch normalisation for any PyTorch model.", _Commands)


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
app.command("evaluate", cls=PlanCommand)(evaluate_command)
app.command("predict")(predict_command)
app.command("corrupt")(corrupt_command)
app.command("doctor")(doctor_command)
app.command("calibrate")(calibrate_command)
app.command("recompute")(recompute_command)
app.command("serve")(serve_command)
app.command("zoo")(zoo_command)
app.add_typer(results_app, name="results")
app.add_typer(paper_app, name="paper")
app.add_typer(data_app, name="data")
app.add_typer(onnx_app, name="onnx")
app.add_typer(train_app, name="train")
