"""`predbn demo`: an evaluation of a network on images that come with the package, without download or GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .evaluate import run_and_show
from .option_sets import Output
from .options import Device, in_process_engine
from .targets import check_folder

if TYPE_CHECKING:
    from predbn.evaluation import Plan


def demo_command(
    output: Output,
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("predbn-demo"),
    device: Device = "cpu",
) -> None:
    """Show the method on real images and a trained network: no download, no GPU, under a minute.

    Example:

      predbn demo
    """
    engine, plan = in_process_engine(device), demo_plan()
    output.console.print(
        f"A ResNet-20 on {plan.images} CIFAR-10 test images, clean and under 19 corruptions at severities "
        f"{', '.join(map(str, plan.severities))}: as it was trained (train), with the statistics of each batch "
        "(batch), and with as much of them as the shift calls for, in one to four passes (auto(passes=4))."
    )
    check_folder(out)
    run_and_show(plan, out, engine, output)
    output.console.print(
        "\nFor your own model: [bold]predbn.adapt(model)[/bold] for batch, [bold]predbn.AutoPredictor(model)[/bold] "
        "for auto(passes=4); to measure what they do there: [bold]predbn evaluate --help[/bold]."
    )


def demo_plan() -> Plan:
    """One network without adaptation, with the statistics of the batch, and with `auto` in several passes.

    One network on 100 images at three severities takes half a minute of one core.
    """
    from predbn.evaluation import Plan

    return Plan(
        models="zoo:resnet20-cifar10/batch/0",  # type: ignore[arg-type]
        strategies=("train", "batch", "auto(passes=4)"),
        severities=(1, 3, 5),
        batch_sizes=(100,),
        images=100,
        hits=True,
    )
