"""`predbn corrupt`: corrupted copies of clean images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .options import Modules, import_modules, split_values, usage_error
from .output import make_console

CONSTANTS = ("auto", "cifar", "imagenet")


def corrupt_command(
    source: Annotated[
        Path | None,
        typer.Argument(help="Clean images: a .npy file [N, H, W, 3] or a folder <class>/<image>."),
    ] = None,
    out: Annotated[Path | None, typer.Argument(help="Directory to write to.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of a .npy source; labels.npy next to it by default.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--shift", help="A corruption to write, such as fog; may be repeated; all 19 by default."),
    ] = None,
    modules: Modules = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    constants: Annotated[
        str, typer.Option(help="Severities of cifar or imagenet; auto chooses by the size of the images.")
    ] = "auto",
) -> None:
    """Write CIFAR-10-C or ImageNet-C from clean images: the first from a .npy file, the second from a folder.

    It can be stopped at any time and continues when it is started again.

    Examples:

      predbn corrupt cifar10-test.npy CIFAR-10-C
      predbn corrupt imagenet/val ImageNet-C --shift fog --shift snow
    """
    import_modules(modules)
    if constants not in CONSTANTS:
        raise typer.BadParameter(f"{constants!r} is not one of {', '.join(CONSTANTS)}.", param_hint="--constants")
    if source is None or out is None:
        raise typer.BadParameter(
            "give the clean images and the directory to write to: predbn corrupt SOURCE OUT.", param_hint="SOURCE OUT"
        )
    if not source.exists():
        raise typer.BadParameter(f"{source} does not exist.", param_hint="SOURCE")
    if source.is_dir():
        _refuse({"--labels": labels}, "the classes of a folder are its labels")
    from predbn.data import write_cifar10c, write_imagenetc
    from predbn.shifts import find_corruption, names

    with usage_error("--shift"):
        corruptions = [find_corruption(name).name for name in split_values(only)] if only else list(names("all"))
    console = make_console(soft_wrap=True)
    kept = f"the files that are finished are kept in {out}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(console, "corrupting") as progress:
        options: dict[str, Any] = {"seed": seed, "constants": constants, "progress": progress}
        if source.is_dir():
            write_imagenetc(source, out, corruptions, **options)
        else:
            labels_file = labels or source.with_name("labels.npy")
            write_cifar10c(source, labels_file, out, corruptions, **options)
    console.print(f"Wrote {len(corruptions)} corruptions at 5 severities to {out}", markup=False)


def _refuse(options: dict[str, object], reason: str) -> None:
    """Refuse options that would be ignored."""
    for option, given in options.items():
        if given:
            raise typer.BadParameter(f"{reason}: leave out {option}.", param_hint=option)
