"""What was found, in words: what got better, by how much, where, and what got worse."""

from __future__ import annotations

import pandas as pd

from predbn.common import ReportError

from .frames import (
    BASELINE,
    CLEAN,
    averaged,
    checked,
    main_method,
    main_setting,
    of_metric,
    readable,
    settings,
    strategies,
    with_series,
)
from .gains import gains
from .meanings import Meaning, meaning, ordered

__all__ = ["headline"]


def headline(frame: pd.DataFrame) -> list[str]:
    """Plain sentences on what the results say, the most important first.

    They compare prediction-time BN (or else the first strategy there is) with train BN for the main method, at the
    highest severity, over all splits and on clean data. Good and bad are said with the same words.
    """
    results = checked(frame)
    parts = settings(results)
    main = main_setting(parts)
    strategy = next((name for name in ("batch", *strategies(parts[main])) if _compared(parts[main], name)), None)
    metrics = [name for name in ordered(parts[main]["metric"]) if meaning(name).better]
    if strategy is None or not metrics:
        return _values(parts[main])
    where = f"With {_phrase(main)}, " if main else ""
    sentences = _main_part(parts[main], strategy, metrics, where)
    others = [
        _severe(gains(part, metrics[0], strategy=strategy), meaning(metrics[0]), "it", f"With {_phrase(name)}, ")
        for name, part in parts.items()
        if name != main and _compared(part, strategy) and metrics[0] in set(part["metric"])
    ]
    return [*sentences, *filter(None, others)]


def _compared(part: pd.DataFrame, strategy: str) -> bool:
    """Whether the main method has both the baseline and this strategy."""
    there = set(part.loc[part["method"] == main_method(part), "strategy"])
    return strategy != BASELINE and {BASELINE, strategy} <= there


def _phrase(setting: str) -> str:
    return setting.replace("batch size ", "batches of ").replace("order ", "the order ")


def _main_part(part: pd.DataFrame, strategy: str, metrics: list[str], where: str) -> list[str]:
    name = "prediction-time BN" if strategy == "batch" else f"the strategy {strategy}"
    found: dict[str, pd.DataFrame] = {}
    for metric in metrics:
        try:
            found[metric] = gains(part, metric, strategy=strategy)
        except ReportError:
            continue
    lead, first = next(iter(found.items()))
    sentences = [_severe(first, meaning(lead), name, where), _others_at_top(found), _splits(first, meaning(lead))]
    sentences += [_on_clean(found), _best(part, lead)]
    return [sentence for sentence in sentences if sentence]


def _top(splits: pd.DataFrame) -> pd.DataFrame:
    """The shifted splits of the highest severity; none where nothing is shifted."""
    shifted = splits[splits["corruption"] != CLEAN]
    top: pd.DataFrame = shifted[shifted["severity"] == shifted["severity"].max()]
    return top


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _severe(splits: pd.DataFrame, known: Meaning, name: str, where: str) -> str:
    """From what to what the metric goes at the highest severity."""
    top = _top(splits)
    if top.empty:
        return ""
    before, after = top["before"].mean(), top["after"].mean()
    place = f"{known.label} at severity {top['severity'].iloc[0]}"
    detail = f", on average over {len(top)} corruptions" if len(top) > 1 else ""
    if known.text(before) == known.text(after):
        return _capital(f"{where}{name} leaves {place} at {known.text(after)}{detail}.")
    verb = "raises" if after > before else "lowers"
    judged = "" if known.name == "accuracy" else " (better)" if top["gain"].mean() > 0 else " (worse)"
    return _capital(f"{where}{name} {verb} {place} from {known.text(before)} to {known.text(after)}{judged}{detail}.")


def _moves(means: dict[str, tuple[float, float]]) -> str:
    """`a improves from x to y and b from z to w; c worsens from …; d stays at …`."""
    groups: dict[str, list[str]] = {"improves": [], "worsens": [], "stays": []}
    for metric, (before, after) in means.items():
        known = meaning(metric)
        if known.text(before) == known.text(after):
            groups["stays"].append(f"{known.label} stays at {known.text(after)}")
            continue
        verb = "improves" if known.sign * (after - before) > 0 else "worsens"
        said = "" if groups[verb] else f" {verb}"
        groups[verb].append(f"{known.label}{said} from {known.text(before)} to {known.text(after)}")
    return "; ".join(_listed(group) for group in groups.values() if group)


def _listed(phrases: list[str]) -> str:
    *most, last = phrases
    return f"{', '.join(most)} and {last}" if most else last


def _others_at_top(found: dict[str, pd.DataFrame]) -> str:
    tops = {metric: _top(splits) for metric, splits in list(found.items())[1:]}
    means = {metric: (top["before"].mean(), top["after"].mean()) for metric, top in tops.items() if len(top)}
    return f"There, {_moves(means)}." if means else ""


def _on_clean(found: dict[str, pd.DataFrame]) -> str:
    rows = {metric: splits[splits["corruption"] == CLEAN] for metric, splits in found.items()}
    means = {metric: (row["before"].iloc[0], row["after"].iloc[0]) for metric, row in rows.items() if len(row)}
    return f"On clean data, {_moves(means)}." if means else ""


def _splits(splits: pd.DataFrame, known: Meaning) -> str:
    """In how many splits it is better, and the two ends."""
    shifted = splits[splits["corruption"] != CLEAN].dropna(subset=["gain"]).reset_index(drop=True)
    if len(shifted) < 2:
        return ""

    def end(index: int) -> str:
        row = shifted.loc[index]
        unit = " points" if known.percent else ""
        return f"{readable(row['corruption'])} at severity {row['severity']} ({known.change(row['gain'])}{unit})"

    better = int((shifted["gain"] > 0).sum())
    count = f"It has the better {known.label} in {better} of {len(shifted)} splits"
    best, worst = int(shifted["gain"].idxmax()), int(shifted["gain"].idxmin())
    if shifted.loc[worst, "gain"] >= 0:
        return f"{count}; the largest gain is on {end(best)}, the smallest on {end(worst)}."
    if shifted.loc[best, "gain"] <= 0:
        return f"{count}; the largest loss is on {end(worst)}."
    return f"{count}; the largest gain is on {end(best)}, the largest loss on {end(worst)}."


def _best(part: pd.DataFrame, metric: str) -> str:
    """Which series is best at the highest severity, where there are more than the two compared."""
    known = meaning(metric)
    means = _means_at_top(of_metric(part, metric))
    if len(means) < 3:
        return ""
    best = max(means, key=lambda series: known.sign * means[series])
    found = f"{best} has the best {known.label} {_at_top(part)}: {known.text(means[best])}"
    return f"Of all {len(means)} combinations of method and strategy, {found}."


def _at_top(part: pd.DataFrame) -> str:
    severity = int(part["severity"].max())
    return f"at severity {severity}" if severity else "on clean data"


def _means_at_top(rows: pd.DataFrame) -> dict[str, float]:
    """The mean over the corruptions at the highest severity, by series."""
    values = averaged(rows)
    top = values[values["severity"] == values["severity"].max()]
    means: dict[str, float] = top.groupby("series", sort=False)["value"].mean().to_dict()
    return means


def _values(part: pd.DataFrame) -> list[str]:
    """Where there is nothing to compare: what was measured."""
    sentences = []
    for series, rows in with_series(part).groupby("series", sort=False):
        texts = []
        for metric in ordered(rows["metric"]):
            mean = next(iter(_means_at_top(of_metric(rows, metric)).values()))
            texts.append(f"{meaning(metric).label} {meaning(metric).text(mean)}")
        sentences.append(f"{_capital(str(series))} {_at_top(part)}: {', '.join(texts)}.")
    return [
        *sentences,
        f"Nothing is compared, since the results do not have {BASELINE} together with another strategy.",
    ]
