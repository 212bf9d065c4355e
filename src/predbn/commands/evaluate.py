"""`predbn evaluate`: measure models under shift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .options import (
    MAX_BINS,
    MAX_COUNT,
    MAX_SEED,
    Address,
    CpusPerWorker,
    Device,
    EngineName,
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
    split_values,
    usage_error,
)
from .output import make_console, print_results, to_records, write_report
from .shift_output import print_real_shifts, shift_records
from .targets import check_folder

if TYPE_CHECKING:
    from predbn.evaluation import Plan

_IN_PLAN = (
    *("model", "weights", "mean", "std", "size", "data", "root", "clean", "validation", "shift", "severity"),
    *("strategy", "method", "batch_size", "order", "seed", "images", "precision", "bins", "hits"),
    *("reference", "unlabelled", "class_map"),
)
"""The options that a plan replaces."""

_NOT_WITH_REFERENCE = ("shift", "severity", "clean", "validation", "hits")
"""The options about corruptions, which a real shift does without."""


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
    data: Annotated[
        str,
        typer.Option(
            help="sample (2,000 CIFAR-10 test images, part of the package), cifar10 (see predbn data); with --root "
            "imagenet, imagenet-v2, imagenet-a, imagenet-r or imagenet-c; a folder with images.npy and labels.npy, "
            "with one folder of images per class, CIFAR-10-C or ImageNet-C; or criteo, the rows that predbn data "
            "criteo has prepared."
        ),
    ] = "sample",
    reference: Annotated[
        str | None,
        typer.Option(
            help="For data that has really shifted: a folder of pictures that the model knows, from the old camera. "
            "Strategies are calibrated on it, --data is predicted as it comes, and what to use is said first, also in "
            "report.html."
        ),
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="With --reference: the folders in --data are not classes; use no labels."),
    ] = False,
    class_map: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Which class is which output of the model: a file with one name per line in the order of the outputs, "
            'or JSON such as {"cat": 0, "dog": 1}. For folders with other names, or only some of the classes.',
        ),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            help="For imagenet, imagenet-v2 and so on, the folder that contains the class folders; for cifar10 and "
            "criteo, the folder of the data if it is not in the cache; FOLDER#all if all rows of a criteo folder are "
            "for testing."
        ),
    ] = None,
    clean: Annotated[str | None, typer.Option(help="The clean images of a published CIFAR-10-C or ImageNet-C.")] = None,
    validation: Annotated[
        str | None,
        typer.Option(help="Data to fit methods and calibrate strategies; sample and cifar10 have their own."),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            help="all (clean and every corruption), standard, extra, clean, a corruption such as fog, or one that "
            "changes: mixed-5 or mixed-all-levels (each image has one of several), in_turn-standard (one after "
            "another), markov-all-0.85 (a Markov chain that stays with probability 0.85). "
            "For rows: all, clean, tokens, columns, marginals. May be repeated; all by default."
        ),
    ] = None,
    severity: Annotated[
        list[str] | None, typer.Option(help="1 to 5, or percentages for rows; may be repeated; all by default.")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="train, batch, auto, auto_stream, prior(N=16), ema, frozen or population, optionally followed by "
            "\\[eps=0.01, layers=last, robust=True]. May be repeated; train and batch by default, with --reference "
            "also prior, ema, auto(passes=1), auto_stream and auto."
        ),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="vanilla, temperature or ensemble, may be repeated; vanilla by default.")
    ] = None,
    batch_size: Annotated[
        list[str] | None,
        typer.Option(
            help="Images per prediction batch, or all; may be repeated; 500 by default, 16 and 100 with --reference."
        ),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(
            help="The order of the images: shuffled, official, by_class, dirichlet:0.1 (classes in bursts) or "
            "markov:0.95 (the next image has the same class with probability 0.95); attacked:targeted or "
            "attacked:everyone, shuffled, with some images of each batch optimised to harm the others, which alone are "
            "scored. May be repeated; shuffled by default, and official with --reference: by file name."
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=-MAX_SEED, max=MAX_SEED, help="Random seed; may be repeated; 0 by default."),
    ] = None,
    images: Annotated[
        int | None, typer.Option(max=MAX_COUNT, help="Use only this many images of each split; all by default.")
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32 (without TF32), tf32, bf16 or fp16.")] = "fp32",
    bins: Annotated[
        int | None,
        typer.Option(max=MAX_BINS, help="Bins of the ECE; by default as in the paper: 30 for ImageNet, otherwise 10."),
    ] = None,
    hits: Annotated[
        bool | None,
        typer.Option(
            "--hits/--no-hits",
            help="Store which images were classified correctly, for intervals over images; on for pictures, "
            "unless they are attacked.",
            show_default=False,
        ),
    ] = None,
    modules: Modules = None,
    plan: Annotated[Path | None, typer.Option(help="A plan in TOML, instead of all options above.")] = None,
    device: Device = "auto",
    engine: EngineOption = EngineName.in_process,
    address: Address = None,
    cpus_per_worker: CpusPerWorker = None,
    gpus_per_worker: GpusPerWorker = None,
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
    from predbn.data import is_tabular
    from predbn.evaluation import Model, Plan, evaluate, read_plan
    from predbn.recommendation import recommendation_sentences, run_shift, shift_plan

    import_modules(modules, model or [])
    if plan is not None:
        refuse_options(context, _IN_PLAN, "the plan says that: leave out this option or --plan.")
        with usage_error("--plan"):
            run_plan = read_plan(plan)
    else:
        if not model:
            raise typer.BadParameter(
                "name a model, such as zoo:resnet20-cifar10/batch/0, or give a --plan.", param_hint="--model"
            )
        preprocessing = parse_preprocessing(mean, std, size)
        repeated: dict[str, Any] = {
            "shifts": split_values(shift),
            "severities": [_parse_severity(text) for text in split_values(severity)],
            "strategies": split_values(strategy),
            "methods": split_values(method),
            "batch_sizes": [_parse_batch_size(text) for text in split_values(batch_size)],
            "orders": split_values(order),
            "seeds": seed,
        }
        options: dict[str, Any] = {
            "class_map": class_map,
            "images": images,
            "precision": precision,
            "bins": bins,
            **{name: value for name, value in repeated.items() if value},
        }
        with usage_error():
            models = [Model(each, weights, preprocessing) for each in model]
            if reference is not None:
                refuse_options(
                    context, _NOT_WITH_REFERENCE, "it is about corruptions, and --reference about a real shift."
                )
                run_plan = shift_plan(models, reference, _data_reference(data, root), unlabelled=unlabelled, **options)
            else:
                refuse_options(context, ["unlabelled"], "it goes with --reference: add that, or leave it out.")
                keeps_hits = not is_tabular(data) and not any(
                    each.startswith("attacked:") for each in repeated["orders"]
                )
                run_plan = Plan(
                    models=models,  # type: ignore[arg-type]
                    data=_data_reference(data, root),
                    clean=clean,
                    validation=validation,
                    hits=keeps_hits if hits is None else hits,
                    **options,
                )
        _refuse_unused_data(run_plan)
    check_folder(out)
    console = make_console(quiet=quiet or as_json)
    with (
        if_interrupted(f"what is finished is kept in {out}; run the same command again to continue."),
        open_engine(engine, device, address, cpus_per_worker, gpus_per_worker) as opened_engine,
        progress_bar(console, "evaluating") as progress,
    ):
        if run_plan.reference is not None:
            found = run_shift(run_plan, out, opened_engine, progress=progress)
        else:
            results = evaluate(run_plan, out, engine=opened_engine, progress=progress)
    if run_plan.reference is not None:
        if report:
            write_report(out / "report.html", found.results, found.findings)
        if as_json:
            comparisons = [shift_records(each) for each in found.shifts]
            typer.echo(json.dumps({"out": str(out), "comparisons": comparisons, "findings": found.findings}))
            return
        print_real_shifts(console, found.shifts, found.findings)
        where = [f"results in {out}", f"the pictures that would be predicted differently in {out / 'changes.csv'}"]
        where += [f"report in {out / 'report.html'}"] if report else []
        console.print(f"[dim]{escape('; '.join(where))}[/dim]", soft_wrap=True)
        return
    written = [f"results in {out}"]
    if report:
        write_report(out / "report.html", results)
        written.append(f"report in {out / 'report.html'}")
    if as_json:
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
    console.print(f"[dim]{escape(', '.join(written))}[/dim]", soft_wrap=True)


def _refuse_unused_data(plan: Plan) -> None:
    """Data that nothing is computed on is a usage error: its reference may be wrong, and nobody would notice."""
    from predbn.data import is_shifted

    if plan.clean is not None and not is_shifted(plan.data):
        raise typer.BadParameter(
            f"it goes with a published CIFAR-10-C or ImageNet-C, and {plan.data} is neither.", param_hint="--clean"
        )
    if plan.validation is not None and not plan.needs_validation:
        raise typer.BadParameter(
            "no method is fitted and no strategy calibrated, so it is not used: leave it out.",
            param_hint="--validation",
        )


def _data_reference(data: str, root: str | None) -> str:
    """The reference of the data in a plan: with --root, NAME:FOLDER."""
    if root is None:
        return data
    from predbn.data import IMAGENET_SETS

    with_root = ("cifar10", "criteo", *IMAGENET_SETS)
    if data not in with_root:
        raise typer.BadParameter(f"it goes with --data {', '.join(with_root)}, not with {data}.", param_hint="--root")
    return f"{data}:{root}"


def _parse_severity(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number.", param_hint="--severity") from None


def _parse_batch_size(text: str) -> int | str:
    if text == "all":
        return text
    try:
        size = int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor all.", param_hint="--batch-size") from None
    if size > MAX_COUNT:
        raise typer.BadParameter(f"{text} is too large: use {MAX_COUNT} at most, or all.", param_hint="--batch-size")
    return size
