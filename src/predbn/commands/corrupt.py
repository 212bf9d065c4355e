"""`predbn corrupt`: corrupted copies of a user's clean data, or a picture of what the corruptions do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from predbn.common import ShiftError
from predbn.data import write_cifar10c, write_imagenetc, write_preview
from predbn.shifts import find_corruption as find
from predbn.shifts import names

__all__ = ["corrupt_command"]


def corrupt_command(
    source: Annotated[
        Path | None,
        typer.Argument(help="Clean images: a .npy file [N, H, W, 3] or a folder <class>/<image>."),
    ] = None,
    out: Annotated[
        Path | None, typer.Argument(help="Directory to write to; with --preview, the picture to write.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of a .npy source; labels.npy beside it unless given.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A corruption to write, may be repeated; all 19 unless given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="What all random draws follow from.")] = 0,
    processes: Annotated[int, typer.Option(help="Processes to work on.")] = 1,
    constants: Annotated[str, typer.Option(help="Severities: cifar, imagenet or auto, by size.")] = "auto",
    preview: Annotated[bool, typer.Option(help="Write one picture of all 19 × 5 instead.")] = False,
) -> None:
    """Write CIFAR-10-C or ImageNet-C from clean data: a .npy file gives the one, a folder the other.

    It can be stopped at any moment and goes on where it was when it is started again.

    Examples: predbn corrupt cifar10-test.npy CIFAR-10-C --processes 4

    predbn corrupt imagenet/val ImageNet-C --only fog --only snow

    predbn corrupt --preview corruptions.png
    """
    try:
        if preview:
            # With --preview one path is the picture to write, two are a picture to corrupt and that one.
            target = out or source or Path("corruptions.png")
            write_preview(target, source if out else None, seed=seed, constants=constants)
            typer.echo(f"Wrote {target}")
            return
        if source is None or out is None:
            raise ShiftError("Say where the clean images are and where to write: predbn corrupt SOURCE OUT.")
        chosen = [find(name).name for name in only] if only else list(names("all"))
        if not source.exists():
            raise ShiftError(f"{source} does not exist.")
        options: dict[str, Any] = {"seed": seed, "processes": processes, "constants": constants}
        with _progress() as bar:
            task = bar.add_task("corrupting", total=None)

            def report(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            if source.is_dir():
                write_imagenetc(source, out, chosen, report=report, **options)
            else:
                truth = labels or source.with_name("labels.npy")
                write_cifar10c(source, truth, out, chosen, report=report, **options)
    except ShiftError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error


def _progress() -> Progress:
    """A bar with counts, the time gone and an estimate of the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
