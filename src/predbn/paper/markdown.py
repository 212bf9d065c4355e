"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from predbn.report import metric_info


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns are aligned to the right, except for the first."""
    ruler = "---|" + "--:|" * (len(heads) - 1)
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (heads, *rows)]
    return "\n".join([lines[0], f"|{ruler}", *lines[1:]])


def bold_best(metric: str, values: Sequence[float], digits: int | None = None) -> list[str]:
    """The values of a metric as text, the best bold; with the metric's usual number of digits by default."""
    info = metric_info(metric)
    best = max(info.sign * value for value in values)
    texts = [info.number(value) if digits is None else f"{value:.{digits}f}" for value in values]
    return [f"**{text}**" if info.sign * value == best else text for text, value in zip(texts, values, strict=True)]
