"""`predbn evaluate`: measure models under shift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .options import (
    Address,
    CpusPerWorker,
    Device,
    EngineOption,
    GpusPerWorker,
    Json,
    Mean,
    Modules,
    Quiet,
    Size,
    Std,
    import_modules,
    open_engine,
    parse_preprocessing,
    refuse_options,
    refuse_without,
    usage_error,
)
from .output import make_console, print_results, to_records, write_report
from .plan_options import given_fields
from .shift_output import print_real_shifts, shift_records
from .targets import check_folder

if TYPE_CHECKING:
    from predbn.evaluation import Engine, Plan, Results
    from predbn.recommendation import ShiftResults


def evaluate_command(
    context: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model: zoo:resnet20-cifar10/batch/0, timm:NAME, file:WEIGHTS#ARCHITECTURE, or "
            "package.module:function for your own; zoo and file take * for several. May be repeated; models separated "
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
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure accuracy, Brier score, ECE and NLL of models under shift, and AUC for clicks, by strategy and method.

    It can be stopped at any time and continues when it is started again.

    Examples:

      predbn evaluate --model zoo:resnet20-cifar10/batch/0 --shift fog \\
          --shift snow
      predbn evaluate --model 'zoo:resnet20-cifar10/batch/*' --method vanilla \\
          --method ensemble --data cifar10
      predbn evaluate --model mypkg.mymodule:build_model --weights w.pt \\
          --data folder/ --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 \\
          --size 224 --batch-size 100
      predbn evaluate --data imagenet --root ~/imagenet/val \\
          --model timm:resnet50.tv_in1k --batch-size 100
      predbn evaluate --model 'file:runs/criteo-mlp/*.safetensors#criteo-mlp' \\
          --data criteo --order official
      predbn evaluate --model zoo:resnet20-cifar10/batch/0 \\
          --shift in_turn-standard --severity 5 --strategy train \\
          --strategy ema --order dirichlet:0.1 --batch-size 100
      predbn evaluate --plan plan.toml --out run
      predbn evaluate --plan plan.toml --engine ray --address auto
    """
    from predbn.evaluation import Model, read_plan

    import_modules(modules, model or [])
    if engine == "in-process":
        refuse_without(context, "--engine ray", ["address", "cpus_per_worker", "gpus_per_worker"])
    if plan is not None:
        replaced = ["model", "weights", "mean", "std", "size", "root", *context.meta["plan"]]
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
    check_folder(out)
    console = make_console(quiet=quiet or as_json)
    with open_engine(engine, device, address, cpus_per_worker, gpus_per_worker) as opened_engine:
        run_and_show(run_plan, out, opened_engine, console, report=report, as_json=as_json)


def run_and_show(
    plan: Plan, out: Path, engine: Engine, console: Console, *, report: bool = True, as_json: bool = False
) -> None:
    """Carry out a plan, write the report, and print the results."""
    from predbn.evaluation import evaluate
    from predbn.recommendation import run_shift

    kept = f"what is finished is kept in {out}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(console, "evaluating") as progress:
        run = evaluate if plan.reference is None else run_shift
        results: Any = run(plan, out, engine=engine, progress=progress)
    show = _show if plan.reference is None else _show_shift
    show(results, out, report, None if as_json else console)


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
