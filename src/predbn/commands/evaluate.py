"""`predbn evaluate`: measure models under shift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from predbn.common import progress_bar

from .fields import given_fields
from .interrupts import if_interrupted
from .option_sets import EngineOptions, Output, PreprocessingOptions
from .options import Log, Modules, import_modules, refuse_options, usage_error
from .output import print_results, results_record, write_report
from .targets import check_folder

if TYPE_CHECKING:
    from predbn.evaluation import Engine, Plan


def evaluate_command(
    context: typer.Context,
    output: Output,
    prepared: PreprocessingOptions,
    engine: EngineOptions,
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
    root: Annotated[
        str | None, typer.Option(help="The folder of the data: --data imagenet --root FOLDER is imagenet:FOLDER.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A plan in TOML, instead of the options for models, data and measurements.")
    ] = None,
    modules: Modules = None,
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
    engine.check(context)
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
        preprocessing = prepared.preprocessing(*named)
        if root is not None:
            given["data"] = _with_root(given.get("data", "sample"), root)
        with usage_error():
            run_plan = _make_plan([Model(each, weights, preprocessing) for each in model], given)
    if log is not None:
        from predbn.report import find_logger

        with usage_error("--log"):
            find_logger(log)
    check_folder(out)
    with engine.open() as opened_engine:
        run_and_show(run_plan, out, opened_engine, output, report=report, log=log)


def run_and_show(
    plan: Plan, out: Path, engine: Engine, output: Output, *, report: bool = True, log: str | None = None
) -> None:
    """Carry out a plan, write the report, and print the results."""
    from predbn.evaluation import evaluate
    from predbn.recommendation import run_shift

    kept = f"what is finished is kept in {out}; run the same command again to continue."
    findings, written = [], [f"results in {out}"]
    with if_interrupted(kept), progress_bar(output.console, "evaluating") as progress:
        if plan.reference is None:
            results = evaluate(plan, out, engine=engine, progress=progress)
        else:
            measured = run_shift(plan, out, engine=engine, progress=progress)
            results, findings = measured.results, measured.findings
            written.append(f"the images that would be predicted differently in {out / 'changes.csv'}")
    if report:
        write_report(out / "report.html", results, findings)
        written.append(f"report in {out / 'report.html'}")
    if output.as_json:
        typer.echo(json.dumps({"out": str(out), **results_record(results, findings)}))
    else:
        print_results(output.console, results, findings)
        output.console.print(f"[dim]{escape('; '.join(written))}[/dim]", soft_wrap=True)
    if log is not None:
        from predbn.report import log_results

        log_results(log, results)


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
