"""`predbn results`: show a run, compare two, export the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import make_console
from .help import App
from .option_sets import Output
from .options import Json, parse_pairs, usage_error
from .output import METRICS, comparison_table, print_results, to_records, write_report
from .targets import check_file

if TYPE_CHECKING:
    from predbn.evaluation import Results

results_app = App("Show results, compare them, export them.")

Run = Annotated[Path, typer.Argument(help="The folder of a run that predbn evaluate has written.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only these rows, as in strategy=batch, severity=3,4,5 or model='zoo:*'."),
]

_INTEGER_COLUMNS = ("severity", "batch_size", "seed")
_SUFFIXES = (".csv", ".json", ".html")


@results_app.command("show")
def show_command(
    run: Run,
    where: Where = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="accuracy, auc, brier, ece, nll, top5 or confidence.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the results of a run as tables by severity, and what they say in words.

    Examples:

      predbn results show predbn-run
      predbn results show predbn-run --metric ece --where method=ensemble
    """
    from predbn.recommendation import read_findings

    results = _load(run, where)
    if metric:
        results = _filter(results, {"metric": metric}, "--metric")
    if as_json:
        typer.echo(json.dumps(to_records(results.by_severity())))
        return
    print_results(make_console(), results, read_findings(run), metric or METRICS)


@results_app.command("compare")
def compare_command(
    first: Run,
    second: Annotated[Path | None, typer.Argument(help="Another run; by default the same one.")] = None,
    where: Where = None,
    first_where: Annotated[
        list[str] | None, typer.Option("--first", help="Only these rows of the first run, as in strategy=batch.")
    ] = None,
    second_where: Annotated[
        list[str] | None, typer.Option("--second", help="Only these rows of the second run, as in strategy=train.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs, or two parts of one, split by split, with paired bootstrap intervals.

    Examples:

      predbn results compare old-run new-run
      predbn results compare predbn-run --first strategy=batch \\
          --second strategy=train --where method=vanilla
    """
    from predbn.evaluation import compare

    if second is None and not (first_where and second_where):
        raise typer.BadParameter(
            "to compare parts of one run, name both, as in --first strategy=batch --second strategy=train.",
            param_hint="SECOND",
        )
    first_rows = _filter(_load(first, where), _parse_conditions(first_where, "--first"), "--first")
    second_rows = _filter(_load(second or first, where), _parse_conditions(second_where, "--second"), "--second")
    table = compare(first_rows, second_rows)
    if as_json:
        typer.echo(json.dumps(to_records(table)))
        return
    console = make_console()
    first_name = " ".join([str(first), *(first_where or [])])
    second_name = " ".join([str(second or first), *(second_where or [])])
    console.print(f"First: {first_name}. Second: {second_name}.", markup=False)
    apart = [key for key in ("method", "strategy", "batch_size", "order") if key in table.columns]
    for values, part in table.groupby(apart) if apart else [((), table)]:
        if apart:
            named = ", ".join(f"{key} {value}" for key, value in zip(apart, values, strict=True))
            console.print(f"\n{named}", markup=False)
        console.print(comparison_table(part))
    if (table["splits"] == 1).any():
        console.print("Intervals of one split are over its images, if hits were kept (--hits).", style="dim")


@results_app.command("export")
def export_command(
    output: Output,
    run: Run,
    target: Annotated[
        Path, typer.Argument(help="A file: .csv or .json for all rows, as in results.parquet; .html for the report.")
    ],
    where: Where = None,
) -> None:
    """Write results to a file in another format.

    Examples:

      predbn results export predbn-run results.csv
      predbn results export predbn-run report.html --where batch_size=500
    """
    if target.suffix not in _SUFFIXES:
        raise typer.BadParameter(f"{target} must end with {', '.join(_SUFFIXES)}.", param_hint="TARGET")
    check_file(target)
    results = _load(run, where)
    if target.suffix == ".html":
        from predbn.recommendation import read_findings

        write_report(target, results, read_findings(run))
    else:
        from predbn.report import write_file

        is_csv = target.suffix == ".csv"
        text = results.frame.to_csv(index=False) if is_csv else json.dumps(to_records(results.frame), indent=1)
        write_file(target, text.encode())
    output.result(f"Wrote {target}", out=target)


def _load(run: Path, where: list[str] | None) -> Results:
    """The results of a run, filtered by --where."""
    from predbn.evaluation import Results

    return _filter(Results.load(run), _parse_conditions(where, "--where"), "--where")


def _filter(results: Results, conditions: dict[str, Any], option: str) -> Results:
    """The rows that fulfil the conditions; it is a usage error if there are none."""
    with usage_error(option):
        return results.filter(**conditions)


def _parse_conditions(given: list[str] | None, option: str) -> dict[str, Any]:
    """`severity=3,4,5` as the arguments of `Results.filter`."""
    conditions: dict[str, Any] = {}
    for column, value in parse_pairs(given, option, "strategy=batch"):
        if column in _INTEGER_COLUMNS:
            try:
                conditions[column] = [int(part) for part in value.split(",")]
            except ValueError:
                raise typer.BadParameter(f"{column}={value} is not an integer.", param_hint=option) from None
        else:
            # A comma inside of brackets belongs to the value, as in strategy=batch[eps=0.01, layers=last].
            conditions[column] = [value] if "(" in value or "[" in value else value.split(",")
    return conditions
