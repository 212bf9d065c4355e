"""`predbn predict`: the predictions for pictures, with adaptation, as a table."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from predbn.common import atomic_write, progress_bar

from .inputs import open_reference
from .option_sets import ModelOptions, Output
from .options import MAX_COUNT, usage_error
from .targets import check_file

if TYPE_CHECKING:
    from torch import Tensor, nn

    from predbn.models import Classifier
    from predbn.norm import Strategy


def predict_command(
    folder: Annotated[
        str,
        typer.Argument(help="The pictures: a folder, of which all are used, a .npy file or loader:MODULE:FUNCTION."),
    ],
    model: ModelOptions,
    output: Output,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("predictions.csv"),
    strategy: Annotated[
        str, typer.Option(help="train, batch, 'prior(N=16)', ema, auto, auto_stream, 'auto(passes=4)' and so on.")
    ] = "batch",
    batch_size: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Pictures that are predicted at once.")] = 100,
    reference: Annotated[
        str | None, typer.Option(help="Clean pictures that the model knows, without labels, for the strategies auto.")
    ] = None,
    images: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="At most this many of the reference.")] = 2000,
    calibration: Annotated[
        Path | None, typer.Option(help="In place of the reference: a file that predbn calibrate has written.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="A text file with the name of each class on a line.")] = None,
) -> None:
    """Predict a folder of pictures, with adaptation, into a CSV file: file, class, confidence.

    The pictures are predicted in the order of their names, in batches whose statistics the strategy uses.

    Examples:

      predbn predict newcam/ --model timm:resnet50.tv_in1k --strategy auto \\
          --reference oldcam/ --out predictions.csv
      predbn predict newcam/ --model mypkg.mymodule:build --weights w.pt \\
          --size 224 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
    """
    from predbn.data import open_unlabelled, read_class_map
    from predbn.norm import device_of, find_strategy

    with usage_error("--strategy"):
        chosen = find_strategy(strategy)
    if chosen.name == "population":
        raise typer.BadParameter("it needs two passes over the data: use predbn recompute.", param_hint="--strategy")
    if chosen.calibration == "needed" and reference is None and calibration is None:
        raise typer.BadParameter(
            f"{strategy} needs to know clean data: name some with --reference, or a file with --calibration.",
            param_hint="--strategy",
        )
    with usage_error("--labels"):
        names = None if labels is None else list(read_class_map(labels))
    check_file(out)
    classifier = model.load(folder, reference)
    names = names or list(classifier.info.class_names)
    with usage_error("FOLDER"):
        pictures = open_unlabelled(folder, "test", transform=classifier.info.preprocessing.crop)
    predictor = _adapted(classifier, chosen, reference, images, calibration)
    files = getattr(pictures, "paths", range(len(pictures)))
    counts: Counter[str] = Counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        progress_bar(output.console, "predicting", unit="images") as progress,
        atomic_write(out) as part,
        part.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "class", "confidence"])
        for batch in pictures.batches(batch_size, device=device_of(classifier)):
            confidences, classes = _predict(predictor, batch.images)
            for index, confidence, number in zip(batch.index.tolist(), confidences, classes, strict=True):
                name = names[number] if number < len(names) else str(number)
                counts[name] += 1
                writer.writerow([files[index], name, f"{confidence:.4f}"])
            progress(counts.total(), len(pictures))
    most = ", ".join(f"{name} {count}" for name, count in counts.most_common(5))
    output.result(
        f"{out} has the predictions for {counts.total()} pictures, with {strategy}: {most}"
        f"{', …' if len(counts) > 5 else ''}.{'' if names else ' Classes are numbers: --labels FILE names them.'}",
        out=out,
        pictures=counts.total(),
        classes=counts,
    )


def _adapted(
    classifier: Classifier, strategy: Strategy, reference: str | None, images: int, calibration: Path | None
) -> nn.Module:
    """The model with the strategy, calibrated if data or a file for it was named."""
    from predbn.norm import calibrate, predictor
    from predbn.serving import load_calibration

    if calibration is not None:
        load_calibration(classifier, calibration)
    elif reference is not None:
        clean = open_reference(reference, classifier, images)
        calibrate(classifier, (batch.images for batch in clean.batches(100)))
    return predictor(classifier, strategy)


def _predict(predictor: nn.Module, images: Tensor) -> tuple[list[float], list[int]]:
    import torch

    with torch.inference_mode():
        confidence, number = predictor(images).softmax(1).max(1)
    return confidence.tolist(), number.tolist()
