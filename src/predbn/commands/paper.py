"""`predbn paper`: the paper's experiments by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from .engines import engine_on
from .output import Json, Quiet, console_for, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from predbn.paper import Experiment, Finding

__all__ = ["paper_app"]

paper_app = typer.Typer(help="The paper's experiments: run them, draw them, check their claims.", no_args_is_help=True)

FULL, QUICK = Path("results/cifar10"), Path("predbn-paper-quick")
VERDICT_COLOURS = {"holds": "green", "does not hold": "red", "not clear": "yellow", "not measured": "dim"}

Ids = Annotated[list[str] | None, typer.Argument(help="Experiments such as C1, C3 and auto, or all.")]
ResultsFolder = Annotated[Path, typer.Option("--results", help="The folder of the results, one run a plan.")]


@paper_app.command("list")
def list_command(results: ResultsFolder = FULL, as_json: Json = False) -> None:
    """List the experiments: where they are in the paper, which plans they need, whether these are measured.

    Example: predbn paper list
    """
    from predbn.paper import EXPERIMENTS, Runs

    measured = Runs(results).measured
    if as_json:
        listed = [
            {"id": each.id, "figure": each.figure, "title": each.title, "plans": each.plans, "claims": len(each.claims)}
            for each in EXPERIMENTS.values()
        ]
        typer.echo(json.dumps(listed))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("id", "experiment", "in the paper", "plans (* measured)"):
        table.add_column(heading)
    for each in EXPERIMENTS.values():
        plans = ", ".join(f"{plan}{'*' if plan in measured else ''}" for plan in each.plans) or "–"
        table.add_row(each.id, each.title, each.figure, plans)
    console_for(False).print(table)


@paper_app.command("run")
def run_command(
    ids: Ids = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version on the embedded sample: no download, a CPU, minutes.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help=f"Folder for the results, continued where it holds some; {FULL}, or {QUICK} with --quick."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="The folder with ImageNet's class folders, for auto and I1 to I7 (PREDBN_IMAGENET unless given); or "
            "with the rows and networks of K1, as docs/criteo.md says (criteo unless given).",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Weights of ResNet-50 v1, for auto and I1 to I4 (PREDBN_RESNET50 unless given).",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="Use so many images of each split, for a trial; marked as quick results.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="fp32, tf32, bf16 or fp16 for the predictions; looking inside is always fp32.")
    ] = "fp32",
    quiet: Quiet = False,
) -> None:
    """Compute what experiments need. It can be stopped at any moment and goes on where it was.

    The full version takes CIFAR-10 (see predbn data) and wants a GPU. A plan is computed once for all experiments. What
    lacks its data, weights or packages is left out, and said to be.

    Examples: predbn paper run C1 --quick

    predbn paper run all --device cuda --precision fp16

    predbn paper run auto I1 I2 I3 I4 --root ~/imagenet/val --weights resnet50.safetensors
    """
    from predbn.paper import PLANS, Runs, plans_of, run_plan

    chosen = _chosen(ids)
    engine = engine_on(device)
    console = console_for(quiet)
    names = plans_of(chosen)
    runs = Runs(results or (QUICK if quick else FULL))
    folders = {name: runs.place(name).parent for name in names}
    for number, name in enumerate(names, 1):
        was_there = name in Runs(folders[name]).measured
        with progress_bar(console, f"{name} ({number} of {len(names)})") as progress:
            gap = run_plan(
                name,
                folders[name],
                quick=quick,
                precision=precision,
                engine=engine,
                progress=progress,
                root=root,
                weights=weights,
                images=images,
            )
        is_there = name in Runs(folders[name]).measured
        left = "as before" if was_there else "done in part" if is_there else "not measured"
        said = "done" if gap is None else f"{left}: {gap}"
        console.print(f"[bold]{name}[/bold]: {escape(said)} [dim]({PLANS[name].what})[/dim]", soft_wrap=True)
    for experiment in chosen:
        if not experiment.plans:
            console.print(f"{experiment.id}: nothing to run here; predbn paper verify {experiment.id} says why")
    for folder in dict.fromkeys(folders.values()):
        console.print(f"[dim]results in {folder}; next: predbn paper verify --results {folder}[/dim]", soft_wrap=True)


@paper_app.command("verify")
def verify_command(ids: Ids = None, results: ResultsFolder = FULL, as_json: Json = False) -> None:
    """Check every claim of the paper against results: its statement, what was measured, and whether it holds.

    Examples: predbn paper verify

    predbn paper verify C1 C3 --results predbn-paper-quick
    """
    from predbn.paper import QUICK_WARNING as WARNING
    from predbn.paper import Runs, verify
    from predbn.paper import findings_as_data as as_data
    from predbn.paper import verdict_summary as summary

    chosen = _chosen(ids)
    if results != FULL and not results.is_dir():
        raise typer.BadParameter(f"{results} does not exist: predbn paper run makes results.", param_hint="--results")
    runs = Runs(results)
    found = verify(runs, [experiment.id for experiment in chosen])
    if as_json:
        typer.echo(json.dumps({"results": str(results), "quick": runs.is_quick, "claims": as_data(found)}))
        return
    console = console_for(False)
    for experiment, findings in found.items():
        console.print(f"\n[bold]{experiment.id}[/bold] {experiment.title} [dim]({experiment.figure})[/dim]")
        for finding in findings:
            _print_finding(console, finding)
    console.print(f"\n{summary(found)}")
    if runs.is_quick:
        console.print(WARNING)


def _print_finding(console: Console, finding: Finding) -> None:
    colour = VERDICT_COLOURS[finding.verdict.value]
    why = f" ({escape(finding.why)})" if finding.why else ""
    claim = finding.claim
    console.print(
        Padding(
            f"{claim.id} {escape(claim.statement)} → [{colour}]{finding.verdict.value}[/{colour}]{why}", (0, 2, 0, 2)
        )
    )
    if not finding.measurements:
        return
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for justify in ("left", "right", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    for each in finding.measurements:
        shade = VERDICT_COLOURS[each.verdict.value]
        table.add_row(
            escape(each.what),
            each.value,
            f"[dim]{each.bounds}[/dim]",
            each.expected,
            f"[{shade}]{each.verdict.value}[/{shade}]",
        )
    console.print(Padding(table, (0, 0, 0, 7)))


@paper_app.command("figures")
def figures_command(
    ids: Ids = None,
    results: ResultsFolder = FULL,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("paper-figures"),
    suffix: Annotated[
        list[str] | None, typer.Option(help=".svg, .pdf, .png or .json, may be repeated; .svg and .pdf unless given.")
    ] = None,
) -> None:
    """Draw every figure as the paper draws it: one file each, and one HTML page with all of them.

    Examples: predbn paper figures

    predbn paper figures C1 --results predbn-paper-quick --suffix .png
    """
    from predbn.paper import Runs, save_figures
    from predbn.report import ReportError

    chosen = _chosen(ids)
    forms = [each if each.startswith(".") else f".{each}" for each in suffix or (".svg", ".pdf")]
    try:
        saved = save_figures(out, Runs(results), [experiment.id for experiment in chosen], suffixes=forms)
    except ReportError as error:
        raise typer.BadParameter(str(error), param_hint="--suffix") from None
    typer.echo(f"Wrote {(len(saved) - 1) // len(forms)} figures as {' and '.join(forms)}, and {saved[-1]}")


@paper_app.command("document")
def document_command(
    results: ResultsFolder = FULL,
    out: Annotated[Path, typer.Option(help="The document.")] = Path("docs/replication.md"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder to draw the figures in and link them from; none unless given.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Only print the table of the README.")] = False,
    auto: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Only fill the tables of this page, docs/auto.md, and with --figures its figures, with the results of "
            "auto.",
        ),
    ] = None,
) -> None:
    """Write the document on what holds, from results.

    Examples: predbn paper document --figures docs/replication

    predbn paper document --table

    predbn paper document --auto docs/auto.md --figures docs/auto
    """
    from predbn.paper import Runs, fill_page, headline_table, write_document

    runs = Runs(results)
    if auto is not None:
        typer.echo(f"Filled {fill_page(auto, runs, figures=figures)}")
        return
    if table:
        typer.echo(headline_table(runs))
        return
    typer.echo(f"Wrote {write_document(out, runs, figures=figures)}")


def _chosen(ids: list[str] | None) -> list[Experiment]:
    """The experiments asked for; one that is not there is a wrong argument."""
    from predbn.paper import PaperError, choose

    try:
        return choose(ids or [])
    except PaperError as error:
        raise typer.BadParameter(str(error), param_hint="IDS") from None
