"""`predbn train criteo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from predbn.data import criteo
from predbn.models import CriteoSizes
from predbn.training import CriteoRecipe, CriteoSets, produce_criteo

from .training_arguments import device_of, seeds_of

__all__ = ["train_criteo"]


def train_criteo(
    root: Annotated[
        Path | None, typer.Option(help="Folder that predbn data criteo filled; the one in the cache unless given.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network each.")] = "0",
    out: Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")] = Path("runs"),
    epochs: Annotated[int, typer.Option(help="Epochs.")] = 1,
    patience: Annotated[
        int | None, typer.Option(help="Stop when the validation loss has not fallen for so many epochs.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Batch size.")] = 1024,
    learning_rate: Annotated[float, typer.Option(help="Adam's.")] = 1e-3,
    momentum: Annotated[float, typer.Option(help="Adam's β₁.")] = 0.9,
    adam_eps: Annotated[float, typer.Option(help="Adam's ε.")] = 1e-7,
    norm_momentum: Annotated[
        float, typer.Option(help="How far running statistics move in a step; more where there are few steps.")
    ] = 0.01,
    widths: Annotated[str, typer.Option(help="Widths of the ReLU layers.")] = "2572,1454,1596",
    most_buckets: Annotated[
        int | None, typer.Option(help="At most so many buckets a column; the reference benchmark's unless given.")
    ] = None,
    most_dimensions: Annotated[int | None, typer.Option(help="At most so many dimensions a column; likewise.")] = None,
    precision: Annotated[str, typer.Option(help="Matrix products on a GPU: fp32, tf32 or bf16.")] = "fp32",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted training was.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 5000,
    device: Annotated[str, typer.Option(help="cuda, cpu, or auto for the GPU where there is one.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Train the paper's Criteo network on prepared rows: the first 81 % train, half of the rest validates.

    Examples: predbn train criteo --seeds 0-9

    predbn train criteo --root late --epochs 30 --patience 3 --widths 64,32 --most-buckets 500

    predbn train criteo --seeds 0-9 --resume
    """
    sizes = CriteoSizes(widths=_widths(widths)).limited(buckets=most_buckets, dimensions=most_dimensions)
    recipe = CriteoRecipe(
        learning_rate=learning_rate,
        momentum=momentum,
        adam_eps=adam_eps,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
        norm_momentum=norm_momentum,
        precision=precision,  # type: ignore[arg-type]
        sizes=sizes,
    )
    numbers, place = seeds_of(seeds), device_of(device)
    if checkpoint_every < 1:
        raise typer.BadParameter("it must be at least 1.", param_hint="--checkpoint-every")
    console = Console(quiet=quiet, highlight=False, soft_wrap=True)
    sets = CriteoSets(criteo("train", root), criteo("validation", root), criteo("test", root))
    found: list[dict[str, float]] = []

    def finished(seed: int, card: dict[str, Any]) -> None:
        found.append(card["test"])
        console.print(
            f"seed {seed}, {sets.test.name}: AUC {card['test']['auc']:.4f}, Brier {card['test']['brier']:.4f}, "
            f"ECE {card['test']['ece']:.4f}, NLL {card['test']['nll']:.4f} (epoch {card['best_epoch']})",
            markup=False,
        )

    with _bar(console) as bar:
        task = bar.add_task(f"seeds {seeds}", total=None)
        produce_criteo(
            recipe,
            numbers,
            sets,
            out,
            device=place,
            resume=resume,
            checkpoint_every=checkpoint_every,
            on_step=lambda done, total: bar.update(task, completed=done, total=total),
            on_network=finished,
        )
    if len(found) > 1:
        mean = sum(scores["auc"] for scores in found) / len(found)
        console.print(f"mean test AUC {mean:.4f} over {len(found)} seeds")
    console.print(f"Weights, cards and logs are in {out}.", markup=False)


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of widths: write 64,32.", param_hint="--widths") from None


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)
