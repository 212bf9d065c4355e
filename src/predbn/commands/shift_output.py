"""What `predbn evaluate --reference` prints: the answer, the Python for it, the table, the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .output import new_table, print_points

if TYPE_CHECKING:
    from predbn.metrics import Interval
    from predbn.recommendation import RealShift, StrategyOnShift


def print_real_shifts(console: Console, shifts: Sequence[RealShift], findings: Sequence[str]) -> None:
    """Print all comparisons of a run, each beginning with the recommendation."""
    from predbn.recommendation import python_lines, real_shift_sentences

    for shift in shifts:
        if len(shifts) > 1:
            first = shift.frame.iloc[0]
            named = ", ".join(f"{key} {first[key]}" for key in ("model", "method", "order", "seed"))
            console.print(Text(f"\n{named}", style="dim"))
        answer, *reasons = real_shift_sentences(shift)
        console.print(Text(answer, style="bold"))
        for line in python_lines(shift.recommendation):
            console.print(Text(f"    {line}"), soft_wrap=True)
        console.print(strategies_table(shift))
        print_points(console, reasons)
    print_points(console, findings)


def strategies_table(shift: RealShift) -> Table:
    """One row per strategy and batch size; a gain whose interval lies above 0 is bold."""
    table = new_table()
    table.padding = (0, 1, 0, 0)
    headings = ["strategy", "batch"]
    headings += ["accuracy", "change, points", "Brier", "ECE"] if shift.is_labelled else ["confidence"]
    for heading in (*headings, "as train"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right", no_wrap=True)
    for strategy in shift.strategies:
        is_baseline = strategy is shift.strategies[0]
        cells = [strategy.short, "any" if is_baseline else str(strategy.batch_size)]
        if shift.is_labelled:
            cells.append(_percent(strategy.metrics["accuracy"]))
            cells.append("" if is_baseline else _points(strategy.gains["accuracy"]))
            cells += [f"{strategy.metrics[name]:.3f}" for name in ("brier", "ece")]
        else:
            cells.append(_percent(strategy.metrics["confidence"]))
        is_better = not is_baseline and shift.is_labelled and strategy.gains["accuracy"].low > 0
        table.add_row(*cells, _percent(strategy.agreement), style="bold" if is_better else None)
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(gain: Interval) -> str:
    low, estimate, high = (f"{100 * value:+.1f}".replace("-", "−") for value in (gain.low, gain.estimate, gain.high))
    return f"{estimate} [{low}, {high}]" if gain.low != float("-inf") else f"{estimate} [no interval]"


def shift_records(shift: RealShift) -> dict[str, Any]:
    """A comparison as plain data, for JSON."""
    from predbn.recommendation import python_lines, real_shift_sentences

    recommendation = shift.recommendation
    return {
        **{key: shift.frame.iloc[0][key] if key != "seed" else int(shift.frame.iloc[0][key]) for key in _KEYS},
        "recommended": None if recommendation is None else recommendation.strategy,
        "batch_size": None if recommendation is None else recommendation.batch_size,
        "why": None if recommendation is None else recommendation.why,
        "sentences": real_shift_sentences(shift),
        "python": python_lines(recommendation),
        "strategies": [_record(strategy) for strategy in shift.strategies],
    }


_KEYS = ("model", "method", "order", "seed")


def _record(measured: StrategyOnShift) -> dict[str, Any]:
    def intervals(gains: Any) -> dict[str, Any]:
        return {
            name: {"gain": gain.estimate, **({"low": gain.low, "high": gain.high} if gain.low != float("-inf") else {})}
            for name, gain in gains.items()
        }

    return {
        "strategy": measured.strategy,
        "batch_size": measured.batch_size,
        **measured.metrics,
        "agreement": measured.agreement,
        "gains": intervals(measured.gains),
        "gains_on_reference": intervals(measured.on_reference),
    }
