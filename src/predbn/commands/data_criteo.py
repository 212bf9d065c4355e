"""`predbn data criteo`: prepare the rows of Criteo's display advertising data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .option_sets import Output
from .options import parse_pairs

if TYPE_CHECKING:
    from predbn.data import PreparedCriteo

_MAX_EXAMPLES = 10


def criteo_command(
    output: Output,
    root: Annotated[
        Path | None, typer.Option(help="Kaggle's train.txt, its folder, or a CSV file with a header; plain or gzipped.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the prepared rows; criteo in the cache folder by default.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Keep only the rows of a CSV file with this value."),
    ] = None,
    synthetic: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Generate this many synthetic rows instead, which are not Criteo's."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the synthetic rows; 0 by default.")] = None,
) -> None:
    """Prepare Criteo's display advertising data: text to memory-mapped arrays, 160 bytes per row, in one pass.

    Lines that are not valid rows are left out, counted, and listed by number. The rows keep their order: the first
    81 % are for training, the rest is split in half for validation and test.

    Examples:

      predbn data criteo --root ~/dac/train.txt
      predbn data criteo --root rows.csv.gz --where period=late --out late
      predbn data criteo --synthetic 4000000
    """
    from predbn.data import criteo_folder, prepare_criteo, prepare_synthetic

    if (root is None) == (synthetic is None):
        raise typer.BadParameter("give either the file to prepare or --synthetic ROWS.", param_hint="--root")
    if root is not None and not root.expanduser().exists():
        raise typer.BadParameter(f"{root} does not exist.", param_hint="--root")
    if root is not None and seed is not None:
        raise typer.BadParameter("only synthetic rows have a seed: leave it out.", param_hint="--seed")
    if synthetic is not None and where:
        raise typer.BadParameter("synthetic rows have no additional columns: leave it out.", param_hint="--where")
    conditions = dict(parse_pairs(where, "--where", "period=late"))
    folder = out or criteo_folder(synthetic=synthetic is not None)
    advice = "nothing is kept; run the same command again, which takes a minute or two for the whole file."
    with (
        if_interrupted(advice),
        progress_bar(output.console, "synthetic rows" if root is None else root.name) as progress,
    ):
        if root is not None:
            prepared = prepare_criteo(root, folder, where=conditions, progress=progress)
        else:
            prepared = prepare_synthetic(synthetic or 0, folder, seed=seed or 0, progress=progress)
    _print_rejected(output, prepared, folder)
    said = describe_folder(folder, synthetic=root is None)
    output.result(said, folder=folder, rows=prepared.rows, rejected=prepared.rejected)


def describe_folder(folder: Path, *, synthetic: bool) -> str:
    """One sentence on the rows in a folder."""
    from predbn.data import read_prepared_criteo, split_criteo_at

    name = "Criteo, synthetic rows" if synthetic else "Criteo"
    if not (folder / "criteo.json").is_file():
        command = "--synthetic ROWS" if synthetic else "--root PATH/TO/train.txt"
        return f"{name}: not in {folder}; predbn data criteo {command} prepares it."
    prepared = read_prepared_criteo(folder)
    train_end, validation_end = split_criteo_at(prepared.rows)
    size = sum(path.stat().st_size for path in folder.glob("*.npy")) / 1e6
    return (
        f"{name}: {prepared.rows:,} rows ({train_end:,} to train, {validation_end - train_end:,} to validate, "
        f"{prepared.rows - validation_end:,} to test), {size:,.1f} MB, {folder}"
    )


def _print_rejected(output: Output, prepared: PreparedCriteo, folder: Path) -> None:
    """Print how many lines are not valid rows, and the first of them."""
    if not prepared.rejected:
        return
    for line, reason in prepared.examples[:_MAX_EXAMPLES]:
        output.say(f"line {line:,}: {reason}")
    more = "" if prepared.rejected <= _MAX_EXAMPLES else f"; {folder}/criteo.json has the first 100"
    output.say(f"{prepared.rejected:,} of {prepared.lines:,} lines are not valid rows and were left out{more}.")
