"""`predbn train criteo`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .option_sets import Output
from .options import Device, parse_device_option, usage_error
from .targets import check_folder
from .training_options import Out, Resume, Seeds, parse_seeds, print_training, recipe_fields

_MAX_WIDTH = 100_000


def train_criteo_command(
    context: typer.Context,
    output: Output,
    root: Annotated[
        Path | None, typer.Option(help="Folder that predbn data criteo wrote; by default the one in the cache.")
    ] = None,
    seeds: Seeds = "0",
    out: Out = Path("runs"),
    epochs: Annotated[int, typer.Option(help="Epochs.")] = 1,
    patience: Annotated[
        int | None, typer.Option(help="Stop when the validation loss has not fallen for so many epochs.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Batch size.")] = 1024,
    learning_rate: Annotated[float, typer.Option(help="Adam's learning rate.")] = 1e-3,
    momentum: Annotated[float, typer.Option(help="Adam's β₁.")] = 0.9,
    adam_eps: Annotated[float, typer.Option(help="Adam's ε.")] = 1e-7,
    norm_momentum: Annotated[
        float, typer.Option(help="How far a step moves the running statistics; use more if there are few steps.")
    ] = 0.01,
    widths: Annotated[str, typer.Option(help="Widths of the ReLU layers.")] = "2572,1454,1596",
    max_buckets: Annotated[
        int | None, typer.Option(help="Max buckets per column; by default those of the reference benchmark.")
    ] = None,
    max_dimensions: Annotated[
        int | None, typer.Option(help="Max dimensions per column; by default those of the reference benchmark.")
    ] = None,
    precision: Annotated[str, typer.Option(help="Matrix products on a GPU: fp32, tf32 or bf16.")] = "fp32",
    resume: Resume = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 5000,
    device: Device = "auto",
) -> None:
    """Train the paper's Criteo network on prepared rows: the first 81 % for training, half of the rest for validation.

    Examples:

      predbn train criteo --seeds 0-9
      predbn train criteo --root late --epochs 30 --patience 3 --widths 64,32 \\
          --max-buckets 500
      predbn train criteo --seeds 0-9 --resume
    """
    check_folder(out)
    from predbn.data import criteo
    from predbn.models import CriteoSizes
    from predbn.training import CriteoData, CriteoRecipe, train_criteo

    with usage_error():
        sizes = CriteoSizes(widths=_parse_widths(widths)).limited(buckets=max_buckets, dimensions=max_dimensions)
        recipe = CriteoRecipe(**recipe_fields(context, CriteoRecipe), sizes=sizes)
    seed_list, torch_device = parse_seeds(seeds), parse_device_option(device)
    data = CriteoData(criteo("train", root), criteo("validation", root), criteo("test", root))
    train = partial(
        train_criteo,
        recipe,
        seed_list,
        data,
        out,
        device=torch_device,
        resume=resume,
        checkpoint_every=checkpoint_every,
    )
    metrics = ("auc", "brier", "ece", "nll")
    print_training(output, f"seeds {seeds}", train, lambda seed: f"seed {seed}, {data.test.name}", metrics, out)


def _parse_widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of widths: write 64,32.", param_hint="--widths") from None
    if max(widths) > _MAX_WIDTH:
        raise typer.BadParameter(f"a width must be at most {_MAX_WIDTH:,}, got {max(widths):,}.", param_hint="--widths")
    return widths
