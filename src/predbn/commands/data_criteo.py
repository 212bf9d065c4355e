"""`predbn data criteo`: prepare the rows of Criteo's display advertising data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .options import Quiet
from .output import make_console

if TYPE_CHECKING:
    from predbn.data import Shards

_MAX_EXAMPLES = 10


def criteo_command(
    root: Annotated[
        Path | None,
        typer.Option(help="Kaggle's train.txt, its folder, or a CSV file with a header; plain or gzipped."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the prepared rows; criteo in the cache folder by default.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Keep only the rows of a CSV file with this value; may be repeated."),
    ] = None,
    synthetic: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Generate this many synthetic rows instead, which are not Criteo's."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the synthetic rows; 0 by default.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; one per core by default.")] = None,
    quiet: Quiet = False,
) -> None:
    """Prepare Criteo's display advertising data: text to memory-mapped arrays, 160 bytes per row, in one pass.

    It can be stopped at any time and continues when it is started again. Lines that are not valid rows are left out,
    counted, and listed by number. The rows keep their order: the first 81 % are for training, the rest is split in
    half for validation and test.

    Examples:

      predbn data criteo --root ~/dac/train.txt
      predbn data criteo --root rows.csv.gz --where period=late --out late
      predbn data criteo --synthetic 4000000
    """
    from predbn.data import criteo_folder, prepare_criteo, prepare_synthetic

    console = make_console(quiet=quiet, soft_wrap=True)
    if (root is None) == (synthetic is None):
        raise typer.BadParameter("give either the file to prepare or --synthetic ROWS.", param_hint="--root")
    if root is not None and not root.expanduser().exists():
        raise typer.BadParameter(f"{root} does not exist.", param_hint="--root")
    if root is not None and seed is not None:
        raise typer.BadParameter("only synthetic rows have a seed: leave it out.", param_hint="--seed")
    if synthetic is not None and where:
        raise typer.BadParameter("synthetic rows have no additional columns: leave it out.", param_hint="--where")
    folder = out or criteo_folder(synthetic=synthetic is not None)
    kept = f"the rows that are finished are kept in {folder}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(console, "synthetic rows" if root is None else root.name) as progress:
        if root is not None:
            conditions = _parse_conditions(where or [])
            shards = prepare_criteo(root, folder, where=conditions, threads=threads, progress=progress)
        else:
            shards = prepare_synthetic(synthetic or 0, folder, seed=seed or 0, threads=threads, progress=progress)
    _print_rejected(console, shards)
    console.print(describe_folder(folder, synthetic=root is None), markup=False)


def describe_folder(folder: Path, *, synthetic: bool) -> str:
    """One sentence on the rows in a folder."""
    from predbn.data import CRITEO_TOTALS, read_criteo_totals, split_criteo_at

    name = "Criteo, synthetic rows" if synthetic else "Criteo"
    command = "--synthetic ROWS" if synthetic else "--root PATH/TO/train.txt"
    if not (folder / CRITEO_TOTALS).is_file():
        return f"{name}: not in {folder}; predbn data criteo {command} prepares it."
    rows = sum(read_criteo_totals(folder)[1])
    train_end, validation_end = split_criteo_at(rows)
    size = sum(path.stat().st_size for path in folder.glob("*.npy")) / 1e6
    return (
        f"{name}: {rows:,} rows ({train_end:,} to train, {validation_end - train_end:,} to validate, "
        f"{rows - validation_end:,} to test), {size:,.1f} MB, {folder}"
    )


def _parse_conditions(options: list[str]) -> dict[str, str]:
    """COLUMN=VALUE as {column: value}."""
    conditions = {}
    for option in options:
        column, equals, value = option.partition("=")
        if not column or not equals:
            raise typer.BadParameter(f"{option!r} is not a condition: write COLUMN=VALUE.", param_hint="--where")
        conditions[column] = value
    return conditions


def _print_rejected(console: Console, shards: Shards) -> None:
    """Print how many lines are not valid rows, and the first of them."""
    count, lines = (sum(getattr(shard, name) for shard in shards.done) for name in ("rejected", "lines"))
    if not count:
        return
    examples = [example for shard in shards.done for example in shard.examples][:_MAX_EXAMPLES]
    for line, reason in examples:
        console.print(f"line {line:,}: {reason}", markup=False)
    more = f"; {count - len(examples):,} more are in {shards.folder}/*.json" if count > len(examples) else ""
    console.print(f"{count:,} of {lines:,} lines are not valid rows and were left out{more}.", markup=False)
