"""The method on real images and trained networks that come with the package: no download, no GPU."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from predbn import report
from predbn.evaluation import Engine, InProcess, Plan, Results, evaluate
from predbn.report import gains, meaning

from .engines import engine_on
from .output import Json, Quiet, console_for, new_table, print_results, progress_bar

__all__ = ["PLAN", "demo_command", "run"]

PLAN = Plan(
    models="zoo:resnet20-cifar10/batch/[0-2]",  # type: ignore[arg-type]
    methods=("vanilla", "ensemble"),
    severities=(1, 3, 5),
    batch_sizes=(200,),
    images=200,
)
"""About a minute on two cores: three networks, one by one and together, with and without prediction-time BN."""


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("predbn-demo"),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show the method on real images and trained networks: no download, no GPU, about a minute.

    Example: predbn demo
    """
    run(out, engine=engine_on(device), quiet=quiet, as_json=as_json)


def run(
    out: Path, *, plan: Plan = PLAN, engine: Engine | None = None, quiet: bool = False, as_json: bool = False
) -> Results:
    """Evaluate, print what was found, write the report and say where it is."""
    console = console_for(quiet or as_json)
    begin = time.perf_counter()
    members = [member.name for model in plan.models for member in model.members()]
    console.print(
        f"Train BN against prediction-time BN: {len(members)} ResNet-20 and their ensemble, {plan.images} CIFAR-10 "
        f"test images, 19 corruptions at severities {', '.join(map(str, plan.severities))}."
    )
    with progress_bar(console, "evaluating") as progress:
        results = evaluate(plan, out, engine=engine or InProcess(), progress=progress)
    page = report.write(
        out / "report.html",
        results.frame,
        results.card,
        reliability=results.reliability,
        title="predbn demo: prediction-time batch normalisation on corrupted CIFAR-10",
    )
    if as_json:
        summary = json.loads(results.by_severity().to_json(orient="records", double_precision=15))
        typer.echo(json.dumps({"out": str(out), "report": str(page), "by_severity": summary}))
        return results
    print_results(console, results, ("accuracy", "brier", "ece"))
    console.print()
    console.print("What prediction-time BN gains in accuracy, in percentage points, one network (mean of three):")
    console.print(_gains_table(results))
    _print_where(console, page, time.perf_counter() - begin)
    return results


def _gains_table(results: Results) -> Table:
    """The gain in accuracy of every corruption at every severity, the largest at the highest severity first."""
    known = meaning("accuracy")
    splits = gains(results.frame, "accuracy")
    table = splits[splits["severity"] > 0].pivot(index="corruption", columns="severity", values="gain")
    table = table.sort_values(table.columns[-1], ascending=False)
    shown = new_table()
    shown.add_column("corruption", no_wrap=True)
    for severity in table.columns:
        shown.add_column(f"severity {severity}", justify="right", no_wrap=True)
    for corruption, row in table.iterrows():
        colours = ["green" if value > 0 else "red" if value < 0 else "dim" for value in row]
        cells = [f"[{colour}]{known.change(value)}[/{colour}]" for colour, value in zip(colours, row, strict=True)]
        shown.add_row(str(corruption).replace("_", " "), *cells)
    return shown


def _print_where(console: Console, page: Path, seconds: float) -> None:
    console.print(
        f"It took {seconds:.0f} s. The report, with figures: [bold]{escape(str(page))}[/bold]", soft_wrap=True
    )
    console.print("On your own model: [bold]predbn.adapt(model)[/bold], and predbn.restore(model) to undo it;")
    console.print("to see what it does there: [bold]predbn evaluate --help[/bold].")
