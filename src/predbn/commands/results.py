"""`predbn results`: look at a run, compare two, take the numbers elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, comparison_table, console_for, print_results

if TYPE_CHECKING:
    import pandas as pd

    from predbn.evaluation import Results

__all__ = ["results_app"]

results_app = typer.Typer(help="Look at results, compare them, export them.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(help="The folder of a run, as predbn evaluate writes it.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", help="Only rows with this: strategy=batch, severity=3,4,5, model='zoo:*'. May be repeated."
    ),
]

_NUMBERS = ("severity", "batch_size", "seed")
_WRITERS = (".csv", ".json", ".parquet", ".md", ".html")


@results_app.command("show")
def show_command(
    run: Run,
    where: Where = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="accuracy, brier, ece, nll, top5 or confidence; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a run as tables by severity, and say in words what it found.

    Examples: predbn results show predbn-run

    predbn results show predbn-run --metric ece --where method=ensemble
    """
    results = _selected(run, where, "--where")
    if metric:
        results = _filtered(results, {"metric": metric}, "--metric")
    if as_json:
        typer.echo(json.dumps(_records(results.by_severity())))
        return
    print_results(console_for(False), results, tuple(metric) if metric else None)


@results_app.command("compare")
def compare_command(
    first: Run,
    second: Annotated[Path | None, typer.Argument(help="Another run; the same one unless given.")] = None,
    where: Where = None,
    first_where: Annotated[
        list[str] | None, typer.Option("--first", help="Only these rows of the first, as in strategy=batch.")
    ] = None,
    second_where: Annotated[
        list[str] | None, typer.Option("--second", help="Only these rows of the second, as in strategy=train.")
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Compare two runs, or two parts of one, split by split, with paired bootstrap intervals.

    Examples: predbn results compare old-run new-run

    predbn results compare predbn-run --first strategy=batch --second strategy=train --where method=vanilla
    """
    from predbn.evaluation import compare

    if second is None and not (first_where and second_where):
        raise typer.BadParameter(
            "one run is compared with itself by parts: say them, as in --first strategy=batch --second strategy=train.",
            param_hint="SECOND",
        )
    sides = [
        _filtered(_selected(run, where, "--where"), _conditions(parts, option), option)
        for run, parts, option in ((first, first_where, "--first"), (second or first, second_where, "--second"))
    ]
    table = compare(sides[0], sides[1], level=level)
    if as_json:
        typer.echo(json.dumps(_records(table)))
        return
    console = console_for(False)
    names = [
        " ".join([str(run), *(parts or [])]) for run, parts in ((first, first_where), (second or first, second_where))
    ]
    console.print(f"First: {names[0]}. Second: {names[1]}.", markup=False)
    console.print(comparison_table(table, level))


@results_app.command("export")
def export_command(
    run: Run,
    target: Annotated[
        Path, typer.Argument(help="A file: .csv, .json or .parquet for all rows, .md for tables, .html for the report.")
    ],
    where: Where = None,
) -> None:
    """Write results in another form.

    Examples: predbn results export predbn-run results.csv

    predbn results export predbn-run report.html --where batch_size=500
    """
    if target.suffix not in _WRITERS:
        raise typer.BadParameter(f"{target} must end with {', '.join(_WRITERS)}.", param_hint="TARGET")
    results = _selected(run, where, "--where")
    if target.suffix == ".html":
        from predbn import report

        report.write(target, results.frame, results.card, reliability=results.reliability)
    else:
        from predbn.report import write_file as store

        store(target, _exported(results, target.suffix))
    typer.echo(f"Wrote {target}")


def _exported(results: Results, suffix: str) -> bytes:
    frame = results.frame
    if suffix == ".csv":
        return bytes(frame.to_csv(index=False).encode())
    if suffix == ".json":
        return json.dumps(_records(frame), indent=1).encode()
    if suffix == ".parquet":
        return bytes(frame.to_parquet(index=False))
    return _markdown(results).encode()


def _markdown(results: Results) -> str:
    """A table by severity for every metric."""
    from predbn.report import by_severity, meaning
    from predbn.report import check_frame as checked
    from predbn.report import order_metrics as ordered

    parts = []
    for metric in ordered(results.frame["metric"]):
        known = meaning(metric)
        summary = by_severity(checked(results.frame[results.frame["metric"] == metric]))
        severities = sorted(set(summary["severity"]))
        lines = [
            f"| {known.label}{', %' if known.percent else ''} | {' | '.join(map(str, severities))} |",
            f"|---|{'--:|' * len(severities)}",
        ]
        for series, rows in summary.groupby("series", sort=False):
            values = dict(zip(rows["severity"], rows[metric], strict=True))
            cells = [known.number(values[severity]) if severity in values else "–" for severity in severities]
            lines.append(f"| {series} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _selected(run: Path, where: list[str] | None, option: str) -> Results:
    from predbn.evaluation import Results

    return _filtered(Results.load(run), _conditions(where, option), option)


def _filtered(results: Results, conditions: dict[str, Any], option: str) -> Results:
    """The rows asked for; to ask for what is not there is a wrong argument."""
    from predbn.evaluation import EvaluationError

    try:
        return results.filter(**conditions)
    except EvaluationError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _conditions(texts: list[str] | None, option: str) -> dict[str, Any]:
    """`severity=3,4,5` as what `Results.filter` takes."""
    found: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise typer.BadParameter(f"{text!r} is no condition: write it as in strategy=batch.", param_hint=option)
        if key in _NUMBERS:
            try:
                found[key] = [int(part) for part in value.split(",")]
            except ValueError:
                raise typer.BadParameter(f"{value!r} in {text!r} is no whole number.", param_hint=option) from None
        else:
            found[key] = [value] if "(" in value or "[" in value else value.split(",")
    return found


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, which has neither NaN nor infinity."""
    records: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return records
