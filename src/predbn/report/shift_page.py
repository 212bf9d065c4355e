"""The report of a real shift: what to use, the Python for it, every strategy beside `train`, and the pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from predbn.evaluation import DATA_SPLIT, REFERENCE_SPLIT, Results
from predbn.metrics import Interval
from predbn.recommendation import RealShift, StrategyOnShift, python_lines, real_shift_sentences, real_shifts

from .metric_info import metric_info
from .pictures import pictures_of
from .save import write_file
from .strategy_info import strategy_sentences
from .tables import Column, Table, Width, metric_column
from .templates import render_page

TITLE = "Old data, new data: which batch norm statistics?"


def write_shift(path: str | Path, results: Results, findings: Sequence[str] = ()) -> Path:
    """Write the report of a run with a reference atomically as one self-contained HTML file.

    `findings` are those of the examination of the model, as `ShiftResults.findings` has them.
    """
    shifts = real_shifts(results)
    splits = {"The reference": REFERENCE_SPLIT.corruption, "The new data": DATA_SPLIT.corruption}
    pictures = {name: pictures_of(results.examples, split) for name, split in splits.items()}
    page = render_page(
        "shift.html",
        TITLE,
        [],
        comparisons=[_comparison(shift, is_named=len(shifts) > 1) for shift in shifts],
        facts=_facts(results, shifts[0]),
        pictures=[(name, of_split) for name, of_split in pictures.items() if of_split],
        findings=list(findings),
        is_labelled=shifts[0].is_labelled,
        strategies=strategy_sentences(row.strategy for row in shifts[0].strategies),
        card=results.card,
    )
    return write_file(Path(path), page)


def _comparison(shift: RealShift, *, is_named: bool) -> dict[str, Any]:
    """What the page says about one model, method, order and seed; the name is empty if there is only one."""
    answer, *reasons = real_shift_sentences(shift)
    return {
        "name": shift.name if is_named else "",
        "answer": answer,
        "reasons": reasons,
        "python": python_lines(shift),
        "table": strategies_table(shift),
    }


def _facts(results: Results, shift: RealShift) -> list[str]:
    """What was measured, in short phrases."""
    models = sorted(set(results.frame["model"]))
    reference = results.card["data"].get(REFERENCE_SPLIT.corruption, {}).get("images")
    return [
        f"{shift.pictures:,} new pictures, {'with' if shift.is_labelled else 'without'} labels",
        *([f"{reference:,} pictures of the reference"] if reference else []),
        models[0] if len(models) == 1 else f"{len(models)} models",
    ]


def strategies_table(shift: RealShift) -> Table:
    """One row per strategy and batch size, with the paired interval of every change against `train`."""
    rows = shift.strategies
    sizes = [math.nan, *(float(row.batch_size) for row in rows[1:])]
    columns = [
        Column("strategy", [row.short for row in rows]),
        Column("batch", ["any", *(str(row.batch_size) for row in rows[1:])], sizes),
    ]
    if shift.is_labelled:
        columns += [
            _values(rows, "accuracy"),
            _changes(rows, "accuracy", "change, points", lambda row: row.gains.get("accuracy")),
            _values(rows, "brier", "wide"),
            _changes(rows, "brier", "Brier change", lambda row: row.gains.get("brier"), "full"),
            _values(rows, "ece", "wide"),
            _changes(rows, "ece", "ECE change", lambda row: row.gains.get("ece"), "full"),
            _changes(rows, "accuracy", "reference, points", lambda row: row.on_reference.get("accuracy"), "full"),
        ]
    else:
        columns.append(_values(rows, "confidence"))
    agreement = [100 * row.agreement for row in rows]
    columns.append(Column("same as train, %", [f"{share:.1f}" for share in agreement], agreement, shown="wide"))
    columns = [column for column in columns if column.values is None or not all(map(math.isnan, column.values))]
    return Table("Every strategy on the new data, by batch size", columns)


def _values(rows: Sequence[StrategyOnShift], metric: str, shown: Width = "any") -> Column:
    return metric_column(metric, [row.metrics[metric] for row in rows], shown=shown)


def _changes(
    rows: Sequence[StrategyOnShift],
    metric: str,
    heading: str,
    gain_of: Callable[[StrategyOnShift], Interval | None],
    shown: Width = "any",
) -> Column:
    """The change of a metric against `train`: a gain with the sign of the metric, since a Brier score falls."""
    sign = metric_info(metric).sign
    unknown = math.nan, math.nan, math.nan
    gains = [(gain.estimate, gain.low, gain.high) if (gain := gain_of(row)) else unknown for row in rows]
    changes = [sign * estimate for estimate, _, _ in gains]
    intervals = [(low, high) if sign > 0 else (-high, -low) for _, low, high in gains]
    return metric_column(metric, changes, intervals, heading=heading, shown=shown, are_changes=True)
