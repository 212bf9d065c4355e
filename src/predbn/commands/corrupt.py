"""`predbn corrupt`: corrupted copies of clean images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .option_sets import Output
from .options import Modules, import_modules, split_values, usage_error


def corrupt_command(
    output: Output,
    source: Annotated[
        Path, typer.Argument(exists=True, help="Clean images: a .npy file [N, H, W, 3] or a folder <class>/<image>.")
    ],
    out: Annotated[Path, typer.Argument(help="Directory to write to.")],
    labels: Annotated[
        Path | None, typer.Option(help="Labels of a .npy source; labels.npy next to it by default.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--shift", help="A corruption to write, such as fog; all 19 by default."),
    ] = None,
    modules: Modules = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    constants: Annotated[
        Literal["auto", "cifar", "imagenet"],
        typer.Option(help="Severities of cifar or imagenet; auto chooses by the size of the images."),
    ] = "auto",
) -> None:
    """Write CIFAR-10-C or ImageNet-C from clean images: the first from a .npy file, the second from a folder.

    It can be stopped at any time and continues when it is started again.

    Examples:

      predbn corrupt cifar10-test.npy CIFAR-10-C
      predbn corrupt imagenet/val ImageNet-C --shift fog --shift snow
    """
    import_modules(modules)
    if source.is_dir() and labels is not None:
        raise typer.BadParameter("the classes of a folder are its labels: leave it out.", param_hint="--labels")
    from predbn.data import write_cifar10c, write_imagenetc
    from predbn.shifts import find_corruption, names

    with usage_error("--shift"):
        corruptions = [find_corruption(name).name for name in split_values(only)] if only else list(names("all"))
    kept = f"the files that are finished are kept in {out}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(output.console, "corrupting") as progress:
        options: dict[str, Any] = {"seed": seed, "constants": constants, "progress": progress}
        if source.is_dir():
            write_imagenetc(source, out, corruptions, **options)
        else:
            write_cifar10c(source, labels or source.with_name("labels.npy"), out, corruptions, **options)
    what = f"{len(corruptions)} corruptions" if len(corruptions) > 1 else corruptions[0]
    output.result(f"Wrote {what} at 5 severities to {out}", out=out, corruptions=corruptions)
