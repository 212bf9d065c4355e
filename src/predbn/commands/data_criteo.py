"""`predbn data criteo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from predbn.common import progress_bar
from predbn.data import TOTALS, Shards, criteo_folder, prepare, prepare_synthetic, split_at

__all__ = ["criteo_command", "describe_folder"]

_SHOWN = 10


def criteo_command(
    root: Annotated[
        Path | None,
        typer.Option(help="Kaggle's train.txt, its folder, or a CSV file with a header; plain or gzipped."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the prepared rows; criteo in the cache folder unless given.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Keep the rows of a CSV file that have this there; may be repeated."),
    ] = None,
    synthetic: Annotated[
        int | None, typer.Option(metavar="ROWS", help="Make so many synthetic rows instead, which are not Criteo's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="What synthetic rows follow from.")] = 0,
    processes: Annotated[int | None, typer.Option(help="How many work side by side; cores + 1 unless given.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Prepare Criteo's display advertising data: text to mapped arrays, 160 bytes a row, in one pass.

    It goes on where it was when it is started again. Lines that are no rows are left out, counted, and named by their
    number. The rows keep their order: the first 81 % are for training, the rest is halved into validation and test.

    Examples: predbn data criteo --root ~/dac/train.txt

    predbn data criteo --root rows.csv.gz --where period=late --out late

    predbn data criteo --synthetic 4000000
    """
    console = Console(quiet=quiet, highlight=False, soft_wrap=True)
    if (root is None) == (synthetic is None):
        raise typer.BadParameter("give either the file to prepare or --synthetic ROWS.", param_hint="--root")
    if root is not None and not root.expanduser().exists():
        raise typer.BadParameter(f"{root} does not exist.", param_hint="--root")
    folder = out or criteo_folder(synthetic=synthetic is not None)
    with progress_bar(console, "synthetic rows" if root is None else root.name) as progress:
        if root is not None:
            shards = prepare(root, folder, where=_conditions(where or []), processes=processes, progress=progress)
        else:
            shards = prepare_synthetic(synthetic or 0, folder, seed=seed, threads=processes, progress=progress)
    _say_rejected(console, shards)
    console.print(describe_folder(folder, synthetic=root is None), markup=False)


def describe_folder(folder: Path, *, synthetic: bool) -> str:
    """One sentence on what a folder holds."""
    name = "Criteo, synthetic rows" if synthetic else "Criteo"
    command = "--synthetic ROWS" if synthetic else "--root PATH/TO/train.txt"
    if not (folder / TOTALS).is_file():
        return f"{name}: not in {folder}; predbn data criteo {command} prepares it."
    rows = json.loads((folder / TOTALS).read_text())["rows"]
    first, second = split_at(rows)
    size = sum(path.stat().st_size for path in folder.glob("*.npy")) / 1e6
    return (
        f"{name}: {rows:,} rows ({first:,} to train, {second - first:,} to validate, {rows - second:,} to test), "
        f"{size:,.1f} MB, {folder}"
    )


def _conditions(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is no condition: write COLUMN=VALUE.", param_hint="--where")
        found[name] = value
    return found


def _say_rejected(console: Console, shards: Shards) -> None:
    """How many lines are no rows, and the first of them."""
    count, lines = (sum(getattr(shard, name) for shard in shards.done) for name in ("rejected", "lines"))
    if not count:
        return
    examples = [example for shard in shards.done for example in shard.examples][:_SHOWN]
    for line, why in examples:
        console.print(f"line {line:,}: {why}", markup=False)
    more = f"; {count - len(examples):,} more are in {shards.folder}/*.json" if count > len(examples) else ""
    console.print(f"{count:,} of {lines:,} lines are no rows and were left out{more}.", markup=False)
