"""`predbn paper`: run, draw and check the paper's experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from predbn.common import progress_bar

from .console import make_console, new_table
from .help import App
from .interrupts import if_interrupted
from .option_sets import Output
from .options import Device, Json, in_process_engine, refuse_options, usage_error
from .targets import check_folder

if TYPE_CHECKING:
    from rich.console import Console

    from predbn.paper import Experiment, Finding

paper_app = App("The paper's experiments: run them, draw them, check their claims.")

FULL, QUICK = Path("results/cifar10"), Path("predbn-paper-quick")
VERDICT_COLOURS = {"holds": "green", "does not hold": "red", "not clear": "yellow", "not measured": "dim"}

Ids = Annotated[list[str] | None, typer.Argument(help="Experiments such as C1 and C3, or all.")]
ResultsFolder = Annotated[Path, typer.Option("--results", help="The folder of the results, with one run per plan.")]


@paper_app.command("list")
def list_command(results: ResultsFolder = FULL, as_json: Json = False) -> None:
    """List the experiments: where they are in the paper, which plans they need, and which of these are measured.

    Example:

      predbn paper list
    """
    from predbn.paper import EXPERIMENTS, Runs

    measured = Runs(results).measured
    if as_json:
        records = [
            {
                "id": item.id,
                "figure": item.figure,
                "title": item.title,
                "plans": item.plans,
                "measured": [plan for plan in item.plans if plan in measured],
                "claims": len(item.claims),
            }
            for item in EXPERIMENTS.values()
        ]
        typer.echo(json.dumps(records))
        return
    table = new_table()
    for heading in ("id", "experiment", "in the paper", "plans (* measured)"):
        table.add_column(heading)
    for experiment in EXPERIMENTS.values():
        plans = ", ".join(f"{plan}{'*' if plan in measured else ''}" for plan in experiment.plans) or "–"
        table.add_row(experiment.id, experiment.title, experiment.figure, plans)
    make_console().print(table)


@paper_app.command("run")
def run_command(
    context: typer.Context,
    output: Output,
    ids: Ids = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version on the embedded sample: no download, on a CPU, in minutes.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help=f"Folder for the results, which is continued; by default {FULL}, or {QUICK} with --quick."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="For I1 to I7, the folder with ImageNet's class folders (by default PREDBN_IMAGENET); for "
            "K1, the folder with rows and networks that docs/criteo.md describes (by default criteo).",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Weights of ResNet-50 v1, for I1 to I4 (by default PREDBN_RESNET50).",
        ),
    ] = None,
    plan: Annotated[list[str] | None, typer.Option(help="Run only these plans, by name (predbn paper list).")] = None,
    images: Annotated[
        int | None,
        typer.Option(help="Use only this many images of each split, if all would take too long; documents say so."),
    ] = None,
    networks: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Networks that predbn train cifar10 --out has written, in place of the zoo's; with another --results.",
        ),
    ] = None,
    device: Device = "auto",
    precision: Annotated[
        str, typer.Option(help="fp32, tf32, bf16 or fp16 for the predictions; activations and crops always use fp32.")
    ] = "fp32",
) -> None:
    """Compute the results that experiments need. It can be stopped at any time and continues when it is started again.

    The full version needs CIFAR-10 (see predbn data) and a GPU. A plan is computed once for all experiments. Plans
    whose data, weights or packages are missing are left out and named.

    Examples:

      predbn paper run C1 --quick
      predbn paper run all --device cuda --precision fp16
      predbn paper run I1 I2 I3 I4 --root ~/imagenet/val \\
          --weights resnet50.safetensors
      predbn paper run --plan mixtures-levels --device cuda
      predbn paper run --plan methods \\
          --networks runs-reflect --results results/cifar10/border-reflect-4
    """
    from predbn.paper import CIFAR10, PLANS, Runs, TrainedNetworks, plans_of, run_plan

    experiments = _choose(ids)
    engine = in_process_engine(device)
    console = output.console
    outcomes: dict[str, str] = {}
    names = plans_of(experiments)
    for name in plan or ():
        if name not in names:
            raise typer.BadParameter(
                f"{name!r} is no plan of these experiments: {', '.join(names)}.", param_hint="--plan"
            )
    names = plan or names
    if networks is not None:
        if results is None:
            raise typer.BadParameter("these networks need a folder of results of their own.", param_hint="--results")
        names = [name for name in names if PLANS[name].data_set == CIFAR10]
    data_sets = {PLANS[name].data_set for name in names}
    for option, users in (("root", {"criteo", "imagenet"}), ("weights", {"imagenet"})):
        if not data_sets & users:
            refuse_options(context, [option], "none of these experiments uses it: leave it out.")
    runs = Runs(results or (QUICK if quick else FULL))
    folders = {name: runs.plan_folder(name).parent for name in names}
    for folder in dict.fromkeys(folders.values()):
        check_folder(folder)
    for number, name in enumerate(names, 1):
        was_measured = name in Runs(folders[name]).measured
        kept = f"what is finished is kept in {folders[name]}; run the same command again to continue."
        with if_interrupted(kept), progress_bar(console, f"{name} ({number} of {len(names)})") as progress:
            missing = run_plan(
                name,
                folders[name],
                quick=quick,
                precision=precision,
                engine=engine,
                progress=progress,
                root=root,
                weights=weights,
                images=images,
                networks=None if networks is None else TrainedNetworks(networks),
            )
        is_measured = name in Runs(folders[name]).measured
        state = "as before" if was_measured else "done in part" if is_measured else "not measured"
        outcome = "done" if missing is None else f"{state}: {missing}"
        outcomes[name] = outcome
        console.print(f"[bold]{name}[/bold]: {escape(outcome)} [dim]({PLANS[name].what})[/dim]", soft_wrap=True)
    for experiment in experiments:
        if not experiment.plans and not plan:
            console.print(f"{experiment.id}: nothing to run here; predbn paper verify {experiment.id} says why")
    for folder in dict.fromkeys(folders.values()):
        console.print(f"[dim]results in {folder}; next: predbn paper verify --results {folder}[/dim]", soft_wrap=True)
    if output.as_json:
        typer.echo(json.dumps({"plans": outcomes}))


@paper_app.command("verify")
def verify_command(
    ids: Ids = None,
    results: ResultsFolder = FULL,
    seed: Annotated[int, typer.Option(help="For the intervals that are bootstrapped; no verdict depends on it.")] = 0,
    as_json: Json = False,
) -> None:
    """Check every claim against results: its statement, the measured values, and whether it holds.

    Claims of our own are marked as such and counted apart from those of the paper.

    Examples:

      predbn paper verify
      predbn paper verify C1 C3 --results predbn-paper-quick
    """
    from predbn.paper import QUICK_WARNING, Runs, findings_as_data, plans_of, verdict_summary, verify

    experiments = _choose(ids)
    runs = Runs(results, seed=seed)
    with usage_error("--results"):
        runs.check()
    findings_of = verify(runs, [experiment.id for experiment in experiments])
    if as_json:
        claims = findings_as_data(findings_of)
        typer.echo(json.dumps({"results": str(results), "quick": runs.is_quick, "claims": claims}))
        return
    console = make_console()
    for experiment, findings in findings_of.items():
        console.print(f"\n[bold]{experiment.id}[/bold] {experiment.title} [dim]({experiment.figure})[/dim]")
        for finding in findings:
            _print_finding(console, finding)
    console.print(f"\n{verdict_summary(findings_of)}")
    for plan in plans_of(experiments):
        if plan in runs.reduced:
            console.print(f"The plan {plan} was run on {runs.reduced[plan]}.")
    if runs.is_quick:
        console.print(QUICK_WARNING)


def _print_finding(console: Console, finding: Finding) -> None:
    """Print a claim with its verdict, and below it one row per measurement."""
    colour = VERDICT_COLOURS[finding.verdict.value]
    why = f" ({escape(finding.why)})" if finding.why else ""
    verdict = f"[{colour}]{finding.verdict.value}[/{colour}]{why}"
    own = "" if finding.claim.is_of_paper else " [dim](our own)[/dim]"
    console.print(Padding(f"{finding.claim.id}{own} {escape(finding.claim.statement)} → {verdict}", (0, 2, 0, 2)))
    if not finding.measurements:
        return
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for justify in ("left", "right", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    for measurement in finding.measurements:
        colour = VERDICT_COLOURS[measurement.verdict.value]
        table.add_row(
            escape(measurement.what),
            measurement.value,
            f"[dim]{measurement.intervals}[/dim]",
            measurement.required,
            f"[{colour}]{measurement.verdict.value}[/{colour}]",
        )
    console.print(Padding(table, (0, 0, 0, 7)))


@paper_app.command("figures")
def figures_command(
    output: Output,
    ids: Ids = None,
    results: ResultsFolder = FULL,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("paper-figures"),
    suffix: Annotated[
        list[str] | None, typer.Option(help=".svg, .pdf, .png or .json; .svg and .pdf by default.")
    ] = None,
) -> None:
    """Draw every figure as the paper draws it: one file each, and one HTML page with all of them.

    Examples:

      predbn paper figures
      predbn paper figures C1 --results predbn-paper-quick --suffix .png
    """
    from predbn.paper import Runs, save_figures
    from predbn.report import check_suffix

    experiments = _choose(ids)
    suffixes = [text if text.startswith(".") else f".{text}" for text in suffix or (".svg", ".pdf")]
    with usage_error("--suffix"):
        for text in suffixes:
            check_suffix(Path(f"figure{text}"))
    check_folder(out)
    with if_interrupted(f"the figures that are finished are in {out}; run the same command again for all of them."):
        saved = save_figures(out, Runs(results), [experiment.id for experiment in experiments], suffixes=suffixes)
    said = f"Wrote {(len(saved) - 1) // len(suffixes)} figures as {' and '.join(suffixes)}, and {saved[-1]}"
    output.result(said, written=[str(path) for path in saved])


@paper_app.command("document")
def document_command(
    output: Output,
    results: ResultsFolder = FULL,
    out: Annotated[Path, typer.Option(help="The folder of the pages.")] = Path("docs"),
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw the figures of the pages too, into its subfolder replication.")
    ] = False,
) -> None:
    """Write the pages on which claims hold, and on the results of auto, from results.

    Examples:

      predbn paper document
      predbn paper document --figures
    """
    from predbn.paper import Runs, write_documents

    check_folder(out)
    pages = write_documents(out, Runs(results), draw=figures)
    output.result(f"Wrote {', '.join(map(str, pages))}", written=[str(page) for page in pages])


def _choose(ids: list[str] | None) -> list[Experiment]:
    """The experiments with these ids; an unknown id is a usage error."""
    from predbn.paper import choose

    with usage_error("IDS"):
        return choose(ids or [])
