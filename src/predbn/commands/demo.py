"""`predbn demo`: the method on images and trained networks that come with the package, without download or GPU."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .options import Device, Json, Quiet, in_process_engine
from .output import make_console, new_table, print_results, to_records
from .targets import check_folder

if TYPE_CHECKING:
    from predbn.evaluation import Engine, Plan, Results


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("predbn-demo"),
    device: Device = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show the method on real images and trained networks: no download, no GPU, about a minute.

    Example:

      predbn demo
    """
    run_demo(out, demo_plan(), engine=in_process_engine(device), quiet=quiet, as_json=as_json)


def demo_plan() -> Plan:
    """Three networks, alone and as an ensemble, with and without prediction-time BN: about a minute on two cores."""
    from predbn.evaluation import Plan

    return Plan(
        models="zoo:resnet20-cifar10/batch/[0-2]",  # type: ignore[arg-type]
        methods=("vanilla", "ensemble"),
        severities=(1, 3, 5),
        batch_sizes=(200,),
        images=200,
    )


def run_demo(
    out: Path, plan: Plan, *, engine: Engine | None = None, quiet: bool = False, as_json: bool = False
) -> Results:
    """Evaluate the plan, print the results, write the report and say where it is."""
    from predbn.evaluation import InProcess, evaluate
    from predbn.recommendation import recommendation_sentences
    from predbn.report import write

    check_folder(out)
    console = make_console(quiet=quiet or as_json)
    start = time.perf_counter()
    network_count = sum(len(model.members()) for model in plan.models)
    console.print(
        f"Train BN against prediction-time BN: {network_count} ResNet-20 and their ensemble, {plan.images} CIFAR-10 "
        f"test images, 19 corruptions at severities {', '.join(map(str, plan.severities))}."
    )
    kept = f"what is finished is kept in {out}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(console, "evaluating") as progress:
        results = evaluate(plan, out, engine=engine or InProcess(), progress=progress)
    page = write(
        out / "report.html",
        results.frame,
        results.card,
        reliability=results.reliability,
        title="predbn demo: prediction-time batch normalisation on corrupted CIFAR-10",
        recommendation=recommendation_sentences(results),
    )
    if as_json:
        by_severity = to_records(results.by_severity())
        typer.echo(json.dumps({"out": str(out), "report": str(page), "by_severity": by_severity}))
        return results
    print_results(console, results, ("accuracy", "brier", "ece"))
    console.print()
    console.print("What prediction-time BN gains in accuracy, in percentage points, one network (mean of three):")
    console.print(_gains_table(results))
    console.print(
        f"It took {time.perf_counter() - start:.0f} s. The report, with figures: [bold]{escape(str(page))}[/bold]",
        soft_wrap=True,
    )
    console.print("For your own model: [bold]predbn.adapt(model)[/bold], and predbn.restore(model) to undo it;")
    console.print("to measure what it does there: [bold]predbn evaluate --help[/bold].")
    return results


def _gains_table(results: Results) -> Table:
    """The gain in accuracy for every corruption and severity, sorted by the gain at the highest severity."""
    from predbn.report import gain_over_baseline, metric_info

    accuracy = metric_info("accuracy")
    splits = gain_over_baseline(results.frame, "accuracy")
    by_corruption = splits[splits["severity"] > 0].pivot(index="corruption", columns="severity", values="gain")
    by_corruption = by_corruption.sort_values(by_corruption.columns[-1], ascending=False)
    table = new_table()
    table.add_column("corruption", no_wrap=True)
    for severity in by_corruption.columns:
        table.add_column(f"severity {severity}", justify="right", no_wrap=True)
    for corruption, row in by_corruption.iterrows():
        colours = ["green" if value > 0 else "red" if value < 0 else "dim" for value in row]
        cells = [f"[{colour}]{accuracy.change(value)}[/{colour}]" for colour, value in zip(colours, row, strict=True)]
        table.add_row(str(corruption).replace("_", " "), *cells)
    return table
