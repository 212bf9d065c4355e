"""`predbn demo`: the method on images and a trained network that come with the package, without download or GPU."""

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
from .output import make_console, new_table, print_recommendation, severity_table, to_records
from .targets import check_folder

if TYPE_CHECKING:
    import pandas as pd

    from predbn.evaluation import Engine, Plan, Results

SHOWN = ("batch", "auto")
"""The strategies that the demo compares with train."""


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("predbn-demo"),
    device: Device = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show the method on real images and a trained network: no download, no GPU, about a minute.

    Example:

      predbn demo
    """
    run_demo(out, demo_plan(), engine=in_process_engine(device), quiet=quiet, as_json=as_json)


def demo_plan() -> Plan:
    """One network without adaptation, with the statistics of the batch, and with `auto`.

    `auto` predicts a batch four times. One network on 200 images at three severities takes about a minute on two cores.
    """
    from predbn.evaluation import Plan

    return Plan(
        models="zoo:resnet20-cifar10/batch/0",  # type: ignore[arg-type]
        strategies=("train", *SHOWN),
        severities=(1, 3, 5),
        batch_sizes=(200,),
        images=200,
        hits=True,
    )


def run_demo(
    out: Path, plan: Plan, *, engine: Engine | None = None, quiet: bool = False, as_json: bool = False
) -> Results:
    """Evaluate the plan, print the results, write the report and say where it is."""
    from predbn.evaluation import InProcess, evaluate
    from predbn.recommendation import recommendation_sentences
    from predbn.report import write_results

    check_folder(out)
    console = make_console(quiet=quiet or as_json)
    start = time.perf_counter()
    console.print(
        f"A ResNet-20 on {plan.images} CIFAR-10 test images, clean and under 19 corruptions at severities "
        f"{', '.join(map(str, plan.severities))}: as it was trained (train), with the statistics of each batch "
        "(batch), and with as much of them as the shift calls for (auto)."
    )
    kept = f"what is finished is kept in {out}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(console, "evaluating") as progress:
        results = evaluate(plan, out, engine=engine or InProcess(), progress=progress)
    page = write_results(
        out / "report.html",
        results,
        title="predbn demo: prediction-time batch normalisation on corrupted CIFAR-10",
        recommendation=recommendation_sentences(results),
    )
    if as_json:
        by_severity = to_records(results.by_severity())
        typer.echo(json.dumps({"out": str(out), "report": str(page), "by_severity": by_severity}))
        return results
    console.print(severity_table(results.frame, ("accuracy", "brier", "ece")))
    console.print("What batch and auto gain in accuracy over train, in percentage points:")
    console.print(_gains_table(results))
    print_recommendation(console, recommendation_sentences(results))
    console.print()
    console.print(
        f"It took {time.perf_counter() - start:.0f} s. The report, with figures: [bold]{escape(str(page))}[/bold]",
        soft_wrap=True,
    )
    console.print("For your own model: [bold]predbn.adapt(model)[/bold], and predbn.restore(model) to undo it;")
    console.print("to measure what it does there: [bold]predbn evaluate --help[/bold].")
    return results


def _gains_table(results: Results) -> Table:
    """The gain of each strategy for every corruption and severity, sorted by that of the last at the highest one."""
    from predbn.report import display_name, metric_info

    change = metric_info("accuracy").change
    by_strategy = {
        name: gains[gains["severity"] > 0].pivot(index="corruption", columns="severity", values="gain")
        for name, gains in _gains(results).items()
    }
    last = by_strategy[SHOWN[-1]]
    table = new_table()
    table.add_column("corruption", no_wrap=True)
    for name, gains in by_strategy.items():
        for severity in gains.columns:
            table.add_column(f"{name} {severity}", justify="right", no_wrap=True)
    for corruption in last.sort_values(last.columns[-1], ascending=False).index:
        values = [value for gains in by_strategy.values() for value in gains.loc[corruption]]
        colours = ["green" if value > 0 else "red" if value < 0 else "dim" for value in values]
        cells = [f"[{colour}]{change(value)}[/{colour}]" for colour, value in zip(colours, values, strict=True)]
        table.add_row(display_name(str(corruption)), *cells)
    return table


def _gains(results: Results) -> dict[str, pd.DataFrame]:
    """What each strategy gains in accuracy over train, split by split."""
    from predbn.report import gain_over_baseline, strategy_label

    specs = {strategy_label(spec): spec for spec in results.frame["strategy"].unique()}
    return {name: gain_over_baseline(results.frame, "accuracy", strategy=specs[name]) for name in SHOWN}
