"""`predbn evaluate`: the main job of the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from .engines import Address, CpusPerWorker, EngineName, EngineOption, GpusPerWorker, engine_of
from .output import Json, Quiet, console_for, progress_bar
from .preprocessing import preprocessing_of

if TYPE_CHECKING:
    from predbn.evaluation import Plan

__all__ = ["evaluate_command"]


def evaluate_command(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model: zoo:resnet20-cifar10/batch/0 (* for several), timm:NAME, file:WEIGHTS#ARCHITECTURE (* too), "
            "or package.module:function for your own. May be repeated; commas between make an ensemble."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weights for a function of your own: a file, or a pattern for an ensemble.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(help="Its preprocessing: mean by channel on the scale of 0 to 1, as 0.485,0.456,0.406."),
    ] = None,
    std: Annotated[str | None, typer.Option(help="Standard deviation by channel, on the same scale.")] = None,
    size: Annotated[str | None, typer.Option(help="Height and width of its pictures: 224, or 224x192.")] = None,
    data: Annotated[
        str,
        typer.Option(
            help="sample (2,000 CIFAR-10 test images, in the package), cifar10 (see predbn data); with --root "
            "imagenet, imagenet-v2, imagenet-a, imagenet-r or imagenet-c; a folder: images.npy and labels.npy, one "
            "folder of pictures a class, CIFAR-10-C, ImageNet-C; or criteo, the rows that predbn data criteo prepared."
        ),
    ] = "sample",
    root: Annotated[
        str | None,
        typer.Option(
            help="The folder of imagenet and its kin, with the class folders in it; that of cifar10 or criteo where it "
            "is not in the cache, FOLDER#all for a test set of its own."
        ),
    ] = None,
    clean: Annotated[str | None, typer.Option(help="The clean images of a published CIFAR-10-C or ImageNet-C.")] = None,
    validation: Annotated[
        str | None, typer.Option(help="Data for what is fitted or calibrated; sample and cifar10 have their own.")
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            help="all (clean and every corruption), standard, extra, clean, a corruption such as fog, or mixed-5. "
            "For rows: all, clean, tokens, columns, marginals. May be repeated; all unless given."
        ),
    ] = None,
    severity: Annotated[
        list[int] | None, typer.Option(help="1 to 5, or percentages for rows; may be repeated; all unless given.")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="train, batch, auto, auto_stream, prior(N=16), ema, frozen, population, with \\[eps=0.01, layers=last]"
            " where wanted. May be repeated; train and batch unless given."
        ),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="vanilla, temperature or ensemble, may be repeated; vanilla unless given.")
    ] = None,
    batch_size: Annotated[
        list[str] | None, typer.Option(help="Images in a prediction batch, or all; may be repeated; 500 unless given.")
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(help="shuffled, official, by_class or dirichlet:0.1, may be repeated; shuffled unless given."),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="What is drawn from; may be repeated; 0 unless given.")] = None,
    images: Annotated[int | None, typer.Option(help="Use so many images of each split; all unless given.")] = None,
    precision: Annotated[str, typer.Option(help="fp32 (without TF32), tf32, bf16 or fp16.")] = "fp32",
    bins: Annotated[
        int | None, typer.Option(help="Bins of the ECE; as in the paper unless given: 30 for ImageNet, else 10.")
    ] = None,
    hits: Annotated[
        bool, typer.Option("--hits", help="Keep which images were right, for intervals over images.")
    ] = False,
    plan: Annotated[Path | None, typer.Option(help="A plan in TOML, in place of all options above.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")] = "auto",
    engine: EngineOption = EngineName.in_process,
    address: Address = None,
    cpus_per_worker: CpusPerWorker = None,
    gpus_per_worker: GpusPerWorker = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; it is continued where it holds some.")] = Path(
        "predbn-run"
    ),
    report: Annotated[bool, typer.Option(help="Write report.html beside the results.")] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure accuracy, Brier score, ECE and NLL of models under shift, and AUC for clicks, by strategy and method.

    It can be stopped at any moment and goes on where it was when it is started again.

    Examples: predbn evaluate --model zoo:resnet20-cifar10/batch/0 --shift fog --shift snow

    predbn evaluate --model 'zoo:resnet20-cifar10/batch/*' --method vanilla --method ensemble --data cifar10

    predbn evaluate --model mypkg.mymodule:build_model --weights w.pt --data folder/ --mean 0.485,0.456,0.406
    --std 0.229,0.224,0.225 --size 224 --batch-size 100

    predbn evaluate --data imagenet --root ~/imagenet/val --model timm:resnet50.tv_in1k --batch-size 100

    predbn evaluate --model 'file:runs/criteo-mlp/*.safetensors#criteo-mlp' --data criteo --order official

    predbn evaluate --plan plan.toml --out run

    predbn evaluate --plan plan.toml --engine ray --address auto
    """
    from predbn.evaluation import Model, evaluate

    if plan is not None:
        if model:
            raise typer.BadParameter("a plan names its own models: leave out --model, or --plan.", param_hint="--plan")
        chosen = _planned(plan)
    else:
        if not model:
            raise typer.BadParameter(
                "name a model, such as zoo:resnet20-cifar10/batch/0, or give a --plan.", param_hint="--model"
            )
        prepared = preprocessing_of(mean, std, size)
        given: dict[str, Any] = {
            "shifts": shift,
            "severities": severity,
            "strategies": strategy,
            "methods": method,
            "batch_sizes": None if batch_size is None else [_batch_size(text) for text in batch_size],
            "orders": order,
            "seeds": seed,
        }
        chosen = _made(
            models=[Model(reference, weights, prepared) for reference in model],
            data=_data(data, root),
            clean=clean,
            validation=validation,
            images=images,
            precision=precision,
            bins=bins,
            hits=hits,
            **{name: value for name, value in given.items() if value},
        )
    console = console_for(quiet or as_json)
    with (
        engine_of(engine, device, address, cpus_per_worker, gpus_per_worker) as doer,
        progress_bar(console, "evaluating") as progress,
    ):
        results = evaluate(chosen, out, engine=doer, progress=progress)
    written = [f"results in {out}"]
    if report:
        from predbn import report as reports

        reports.write(out / "report.html", results.frame, results.card, reliability=results.reliability)
        written.append(f"report in {out / 'report.html'}")
    if as_json:
        summary = json.loads(results.by_severity().to_json(orient="records", double_precision=15))
        told = json.loads(results.mce().to_json(orient="records", double_precision=15))
        typer.echo(json.dumps({"out": str(out), "by_severity": summary, **({"mce": told} if told else {})}))
        return
    from .output import print_results

    print_results(console, results)
    console.print(f"[dim]{escape(', '.join(written))}[/dim]", soft_wrap=True)


def _made(**given: Any) -> Plan:
    """The plan of the options; what it cannot use is a wrong argument."""
    from predbn.evaluation import Plan

    try:
        return Plan(**given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _data(data: str, root: str | None) -> str:
    """The reference of the data, in its folder where that is named apart."""
    if root is None:
        return data
    from predbn.evaluation import IMAGENET_SETS

    named = ("cifar10", "criteo", *IMAGENET_SETS)
    if data not in named:
        raise typer.BadParameter(f"it goes with --data {', '.join(named)}, not with {data}.", param_hint="--root")
    return f"{data}:{root}"


def _planned(path: Path) -> Plan:
    from predbn.evaluation import read_plan

    try:
        return read_plan(path)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--plan") from None


def _batch_size(text: str) -> int | str:
    if text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor all.", param_hint="--batch-size") from None
