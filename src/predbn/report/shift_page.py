"""The report of a real shift: what to use, the Python for it, every strategy beside `train`, and the pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from predbn.evaluation import DATA_SPLIT, REFERENCE_SPLIT, Results
from predbn.metrics import Interval
from predbn.recommendation import RealShift, StrategyOnShift, python_lines, real_shift_sentences, real_shifts

from .metric_info import metric_info
from .pictures import pictures_of
from .save import write_file
from .strategy_info import strategy_sentences
from .tables import Column, Table, Width
from .templates import render_page

TITLE = "Old data, new data: which batch norm statistics?"


@dataclass(frozen=True)
class Comparison:
    """What the page says about one model, method, order and seed; `name` is empty if there is only one."""

    name: str
    answer: str
    reasons: Sequence[str]
    python: Sequence[str]
    table: Table


def write_shift(path: str | Path, results: Results, findings: Sequence[str] = (), *, title: str | None = None) -> Path:
    """Write the report of a run with a reference atomically as one self-contained HTML file.

    `findings` are those of the examination of the model, as `ShiftResults.findings` has them.
    """
    shifts = real_shifts(results)
    sides = {"The reference": REFERENCE_SPLIT.corruption, "The new data": DATA_SPLIT.corruption}
    page = render_page(
        "shift.html",
        title or TITLE,
        [],
        comparisons=[_comparison(shift, is_named=len(shifts) > 1) for shift in shifts],
        facts=_facts(results, shifts[0]),
        pictures=[(name, found) for name, split in sides.items() if (found := pictures_of(results.examples, split))],
        findings=list(findings),
        is_labelled=shifts[0].is_labelled,
        strategies=strategy_sentences(dict.fromkeys(each.strategy for each in shifts[0].strategies)),
        card=results.card,
    )
    return write_file(Path(path), page)


def _comparison(shift: RealShift, *, is_named: bool) -> Comparison:
    first = shift.frame.iloc[0]
    name = ", ".join(f"{key} {first[key]}" for key in ("model", "method", "order", "seed")) if is_named else ""
    answer, *reasons = real_shift_sentences(shift)
    return Comparison(name, answer, reasons, python_lines(shift.recommendation), strategies_table(shift))


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
    sizes = [math.nan, *(float(each.batch_size) for each in rows[1:])]
    columns = [
        Column("strategy", [each.short for each in rows]),
        Column("batch", ["any", *(str(each.batch_size) for each in rows[1:])], sizes),
    ]
    if shift.is_labelled:
        columns += [
            _values(rows, "accuracy"),
            _changes(rows, "accuracy", "change, points", lambda each: each.gains.get("accuracy")),
            _values(rows, "brier", "wide"),
            _changes(rows, "brier", "Brier change", lambda each: each.gains.get("brier"), "full"),
            _values(rows, "ece", "wide"),
            _changes(rows, "ece", "ECE change", lambda each: each.gains.get("ece"), "full"),
            _changes(rows, "accuracy", "reference, points", lambda each: each.on_reference.get("accuracy"), "full"),
        ]
    else:
        columns.append(_values(rows, "confidence"))
    agreement = [100 * each.agreement for each in rows]
    columns.append(Column("as train, %", [f"{share:.1f}" for share in agreement], agreement, shown="wide"))
    columns = [column for column in columns if not column.is_number or _is_known(column)]
    return Table("Every strategy on the new data, by batch size", columns)


def _is_known(column: Column) -> bool:
    return not all(math.isnan(value) for value in column.values or ())


def _values(rows: Sequence[StrategyOnShift], metric: str, shown: Width = "any") -> Column:
    info = metric_info(metric)
    values = [each.metrics[metric] for each in rows]
    scale = 100 if info.percent else 1
    heading = f"{info.label}, %" if info.percent else info.label
    return Column(heading, [info.number(value) for value in values], [scale * value for value in values], shown=shown)


def _changes(
    rows: Sequence[StrategyOnShift],
    metric: str,
    heading: str,
    gain_of: Callable[[StrategyOnShift], Interval | None],
    shown: Width = "any",
) -> Column:
    """The change of a metric against `train`: a gain with the sign of the metric, since a Brier score falls."""
    info = metric_info(metric)
    changes: list[tuple[float, float, float]] = []
    for each in rows:
        gain = gain_of(each)
        estimate, *bounds = (math.nan,) * 3 if gain is None else (gain.estimate, gain.low, gain.high)
        low, high = sorted(info.sign * bound for bound in bounds)
        changes.append((info.sign * estimate, *((low, high) if math.isfinite(low) else (math.nan, math.nan))))
    scale = 100 if info.percent else 1
    return Column(
        heading,
        ["" if math.isnan(change) else info.change(change) for change, _, _ in changes],
        [scale * change for change, _, _ in changes],
        [(scale * low, scale * high) for _, low, high in changes],
        ["" if math.isnan(low) else f"{info.change(low)} to {info.change(high)}" for _, low, high in changes],
        shown,
    )
