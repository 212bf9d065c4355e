"""`predbn evaluate`: measure models under shift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from predbn.common import progress_bar

from .fields import given_fields
from .interrupts import if_interrupted
from .option_sets import Output
from .options import (
    Address,
    CpusPerWorker,
    Device,
    EngineOption,
    GpusPerWorker,
    Log,
    Mean,
    Modules,
    Size,
    Std,
    import_modules,
    open_engine,
    parse_preprocessing,
    refuse_options,
    refuse_without,
    usage_error,
)
from .output import print_results, to_records, write_report
from .shift_output import print_real_shifts, shift_records
from .targets import check_folder

if TYPE_CHECKING:
    from predbn.evaluation import Engine, Plan, Results
    from predbn.recommendation import ShiftResults


def evaluate_command(
    context: typer.Context,
    output: Output,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model: zoo:resnet20-cifar10/batch/0, timm:NAME, file:WEIGHTS#ARCHITECTURE, or "
            "package.module:function for your own; zoo and file take * for several. Models separated "
            "by commas form an ensemble."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weights for a function of your own: a file, or a pattern for an ensemble.")
    ] = None,
    mean: Mean = None,
    std: Std = None,
    size: Size = None,
    root: Annotated[
        str | None, typer.Option(help="The folder of the data: --data imagenet --root FOLDER is imagenet:FOLDER.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A plan in TOML, instead of the options for models, data and measurements.")
    ] = None,
    modules: Modules = None,
    device: Device = "auto",
    engine: EngineOption = "in-process",
    address: Address = "auto",
    cpus_per_worker: CpusPerWorker = None,
    gpus_per_worker: GpusPerWorker = 1,
    out: Annotated[Path, typer.Option(help="Folder for the results; a run that is in it already is continued.")] = Path(
        "predbn-run"
    ),
    report: Annotated[bool, typer.Option(help="Write report.html next to the results.")] = True,
    log: Log = None,
) -> None:
    """Compare strategies: on new data against a reference, or under corruptions.

    Measures accuracy, Brier score, ECE and NLL (AUC for clicks) by strategy and method, and recommends a strategy. It
    can be stopped at any time and continues when it is started again.

    Examples:

      predbn evaluate --model mypkg.mymodule:build --weights w.pt --size 224 \\
          --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 \\
          --reference oldcam/ --data newcam/
      predbn evaluate --model timm:resnet50.tv_in1k --data imagenet \\
          --root ~/imagenet/val --shift fog --shift snow --batch-size 100
      predbn evaluate --model 'zoo:resnet20-cifar10/batch/*' --data cifar10 \\
          --method vanilla --method ensemble
      predbn evaluate --model zoo:resnet20-cifar10/batch/0 --severity 5 \\
          --shift in_turn-standard --order dirichlet:0.1 --batch-size 100 \\
          --strategy train --strategy ema --strategy 'auto(passes=4)'
      predbn evaluate --plan plan.toml --engine ray --address auto
    """
    from predbn.evaluation import Model, read_plan

    import_modules(modules, model or [])
    if engine == "in-process":
        refuse_without(context, "--engine ray", ["address", "cpus_per_worker", "gpus_per_worker"])
    if plan is not None:
        replaced = ["model", "weights", "mean", "std", "size", "root", *context.meta["fields"]]
        refuse_options(context, replaced, "the plan says that: leave out this option or --plan.")
        with usage_error("--plan"):
            run_plan = read_plan(plan)
    elif not model:
        raise typer.BadParameter(
            "name a model, such as zoo:resnet20-cifar10/batch/0, or give a --plan.", param_hint="--model"
        )
    else:
        given = given_fields(context)
        named = [given.get(option) for option in ("data", "reference", "validation")]
        preprocessing = parse_preprocessing(mean, std, size, named)
        if root is not None:
            given["data"] = _with_root(given.get("data", "sample"), root)
        with usage_error():
            run_plan = _make_plan([Model(each, weights, preprocessing) for each in model], given)
    if log is not None:
        from predbn.report import find_logger

        with usage_error("--log"):
            find_logger(log)
    check_folder(out)
    with open_engine(engine, device, address, cpus_per_worker, gpus_per_worker) as opened_engine:
        run_and_show(run_plan, out, opened_engine, output, report=report, log=log)


def run_and_show(
    plan: Plan, out: Path, engine: Engine, output: Output, *, report: bool = True, log: str | None = None
) -> None:
    """Carry out a plan, write the report, and print the results."""
    from predbn.evaluation import evaluate
    from predbn.recommendation import run_shift

    kept = f"what is finished is kept in {out}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(output.console, "evaluating") as progress:
        run = evaluate if plan.reference is None else run_shift
        results: Any = run(plan, out, engine=engine, progress=progress)
    show = _show if plan.reference is None else _show_shift
    show(results, out, report, None if output.as_json else output.console)
    if log is not None:
        from predbn.report import log_results

        log_results(log, results if plan.reference is None else results.results)


def _make_plan(models: list[Any], given: dict[str, Any]) -> Plan:
    """The plan of the given fields, with the defaults of the command line."""
    from predbn.data import is_shifted, is_tabular
    from predbn.evaluation import Plan
    from predbn.recommendation import shift_plan

    if (reference := given.pop("reference", None)) is not None:
        return shift_plan(models, reference, given.pop("data", "sample"), **given)
    is_attacked = any(order.startswith("attacked:") for order in given.get("orders", ()))
    given.setdefault("hits", not is_attacked and not is_tabular(given.get("data", "sample")))
    plan = Plan(models, **given)  # type: ignore[arg-type]
    # Data that nothing is computed on may be a mistake in its name, and nobody would notice.
    if plan.clean is not None and not is_shifted(plan.data):
        raise typer.BadParameter(
            f"it goes with a published CIFAR-10-C or ImageNet-C, and {plan.data} is neither.", param_hint="--clean"
        )
    if plan.validation is not None and not plan.needs_validation:
        raise typer.BadParameter(
            "no method is fitted and no strategy calibrated, so it is not used: leave it out.",
            param_hint="--validation",
        )
    return plan


def _with_root(data: str, root: str) -> str:
    from predbn.data import IMAGENET_SETS

    with_root = ("cifar10", "criteo", *IMAGENET_SETS)
    if data not in with_root:
        raise typer.BadParameter(f"it goes with --data {', '.join(with_root)}, not with {data}.", param_hint="--root")
    return f"{data}:{root}"


def _show(results: Results, out: Path, report: bool, console: Console | None) -> None:
    """Write the report and print the results, as JSON without a console."""
    from predbn.recommendation import recommendation_sentences

    if report:
        write_report(out / "report.html", results)
    if console is None:
        mce = to_records(results.mce())
        output = {
            "out": str(out),
            "by_severity": to_records(results.by_severity()),
            **({"mce": mce} if mce else {}),
            "recommendation": recommendation_sentences(results),
        }
        typer.echo(json.dumps(output))
        return
    print_results(console, results)
    _print_files(console, [f"results in {out}"], out, report)


def _show_shift(measured: ShiftResults, out: Path, report: bool, console: Console | None) -> None:
    """The same for a real shift."""
    if report:
        write_report(out / "report.html", measured.results, measured.findings)
    if console is None:
        comparisons = [shift_records(shift) for shift in measured.shifts]
        typer.echo(json.dumps({"out": str(out), "comparisons": comparisons, "findings": measured.findings}))
        return
    print_real_shifts(console, measured.shifts, measured.findings)
    changes = f"the images that would be predicted differently in {out / 'changes.csv'}"
    _print_files(console, [f"results in {out}", changes], out, report)


def _print_files(console: Console, written: list[str], out: Path, report: bool) -> None:
    written += [f"report in {out / 'report.html'}"] if report else []
    console.print(f"[dim]{escape('; '.join(written))}[/dim]", soft_wrap=True)
