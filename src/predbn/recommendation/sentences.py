"""Recommendations in words: which strategy to use and by how much it helps, why, and the Python that does it."""

from __future__ import annotations

import math
from collections.abc import Callable

from predbn.data import IMAGENET_SETS
from predbn.evaluation import REFERENCE_SPLIT, Results, Setting
from predbn.metrics import Interval

from .corruptions import UnderCorruptions, has_corruptions, under_corruptions
from .doubts import doubts_about, doubts_about_reference
from .real_shift import RealShift, real_shifts
from .rule import BASELINE, Comparison, Recommendation, is_below_zero

_Value = Callable[[Comparison | None, str], float]
"""The value of a metric with a candidate, or with the baseline for None."""

_LABELS = {"accuracy": "accuracy", "brier": "Brier score", "auc": "AUC"}
_FEW_CLASSES = 0.5
"""Batches with less than this share of the classes that they could hold get a warning about the order."""
_NARROW = 0.04
"""An interval of the accuracy on the reference that is wider than this does not show that little has changed."""


def recommendation_sentences(results: Results) -> list[str]:
    """What to use and why, for any run; the first sentence is the answer."""
    if shifts := real_shifts(results):
        sentences = [real_shift_sentences(shift) for shift in shifts]
        if len(shifts) == 1:
            return sentences[0]
        return [f"{shift.name}: {answer[0]}" for shift, answer in zip(shifts, sentences, strict=True)]
    doubts = doubts_about(results)
    if not has_corruptions(results):
        return [
            *doubts,
            "Nothing is recommended, since the data was taken as clean and no corruption was measured; for data that "
            "has really shifted, name images that the model knows with --reference.",
        ]
    return [*doubts, *corruption_sentences(under_corruptions(results)), *_taken_as_clean(results)]


def real_shift_sentences(shift: RealShift) -> list[str]:
    """What to use on the new data, and why; or first, why the results are in doubt."""
    return [*doubts_about_reference(shift), *_comparison_sentences(shift)]


def _comparison_sentences(shift: RealShift) -> list[str]:
    recommendation = shift.recommendation
    if recommendation is None:
        return _without_labels(shift)
    by_key = {(strategy.strategy, strategy.batch_size): strategy for strategy in shift.strategies}
    baseline = shift.strategies[0]

    def value(comparison: Comparison | None, metric: str) -> float:
        if comparison is None:
            return baseline.metrics[metric]
        candidate = comparison.candidate
        return by_key[candidate.strategy, candidate.batch_size or 0].metrics[metric]

    sentences = [_answer(recommendation, value, "on the new data")]
    sentences += _reasons(recommendation)
    if recommendation.chosen is not None:
        sentences += _on_reference(recommendation.chosen, "the reference")
    sizes, count = len({strategy.batch_size for strategy in shift.strategies[1:]}), len(recommendation.comparisons)
    sentences.append(
        f"These are simultaneous {100 * recommendation.level:.0f} % intervals over {shift.pictures:,} images, for "
        f"{count} comparison{'s' if count > 1 else ''} with {BASELINE}"
        f"{f' at {sizes} batch sizes' if sizes > 1 else ''}; the images of a batch are one group."
    )
    sentences += _class_order(shift)
    return sentences


def corruption_sentences(measured: UnderCorruptions) -> list[str]:
    """What to use under these corruptions, and why."""
    recommendation = measured.recommendation
    if recommendation is None:
        return _too_little(measured)
    accuracy = "auc" if measured.mean(BASELINE, "auc") is not None else "accuracy"

    def value(comparison: Comparison | None, metric: str) -> float:
        strategy = BASELINE if comparison is None else comparison.candidate.strategy
        mean = measured.mean(strategy, accuracy if metric == "accuracy" else metric)
        return math.nan if mean is None else mean

    sentences = [_answer(recommendation, value, "under these corruptions", accuracy)]
    sentences += _reasons(recommendation, accuracy)
    if recommendation.chosen is not None:
        on_clean = _on_reference(recommendation.chosen, "clean data")
        before, after = (
            measured.mean(name, accuracy, shifted=False)
            for name in (BASELINE, recommendation.chosen.candidate.strategy)
        )
        if not on_clean and before is not None and after is not None:
            on_clean = [f"On clean data it changes {_LABELS[accuracy]} by {_change(after - before, accuracy)}."]
        elif not on_clean:
            on_clean = ["What it costs on clean data was not measured: add --shift clean."]
        sentences += on_clean
    over = "corruptions, each of them one group" if measured.over == "corruptions" else "images"
    count = len(recommendation.comparisons)
    together = f", simultaneous for {count} comparisons with {BASELINE}" if count > 1 else ""
    setting = f" This is for {measured.setting}." if measured.setting else ""
    sentences.append(f"The intervals are over {over}{together}.{setting}")
    return sentences


def python_lines(shift: RealShift) -> list[str]:
    """The Python that does what is recommended; no lines if the model is left alone, or the results are in doubt."""
    recommendation = shift.recommendation
    if recommendation is None or recommendation.strategy == BASELINE or doubts_about_reference(shift):
        return []
    setting = Setting.parse(recommendation.strategy)
    options = "".join(f", {name}={value!r}" for name, value in setting.options.items())
    lines = ["import predbn  # model: your network"]
    if setting.strategy.calibration == "needed":
        reference = shift.card["data"][REFERENCE_SPLIT.corruption]["name"]
        lines.append(f"predbn.calibrate(model, loader)  # loader: batches of {reference}, as the model takes them")
    if setting.strategy.pass_count > 1:
        return [*lines, f"model = predbn.AutoPredictor(model, passes={setting.strategy.pass_count}{options})"]
    return [*lines, f'predbn.adapt(model, "{Setting(setting.strategy).short}"{options})']


def _taken_as_clean(results: Results) -> list[str]:
    """What was corrupted, if it may have shifted itself: data of the user's own."""
    data = str(results.card.get("plan", {}).get("data", "sample"))
    is_published = data.partition(":")[0] in ("sample", "cifar10", *IMAGENET_SETS)
    if is_published or results.card["data"].get("corruptions") != "corrupted on the fly":
        return []
    return [
        f"{data} was taken as clean data, and the corruptions were applied to it; if it has shifted itself, "
        "--reference FOLDER compares it with data that the model was made for."
    ]


def _answer(recommendation: Recommendation, value: _Value, where: str, accuracy: str = "accuracy") -> str:
    """The first sentence. `accuracy` is the metric that decides: the AUC for clicks."""
    chosen, metric = recommendation.chosen, recommendation.metric
    if chosen is None or metric is None:
        largest = recommendation.runner_up
        assert largest is not None
        label, is_worse = _LABELS[accuracy], recommendation.why == "all are worse"
        reason = f"every strategy has a clearly lower {label}" if is_worse else "no strategy is clearly better"
        change = _interval(largest.gains["accuracy"], accuracy)
        return (
            f"Leave the model alone: {reason} than {BASELINE} {where}; the best of them, {_named(largest)}, changes "
            f"{label} by {change}."
        )
    kind = accuracy if metric == "accuracy" else metric
    before, after, gain = value(None, metric), value(chosen, metric), chosen.gains[metric]
    verb = "rises" if kind != "brier" else "falls"
    answer = (
        f"Use {_named(chosen)}: the {_LABELS[kind]} {where} {verb} from {_value(before, kind)} to "
        f"{_value(after, kind)}, by {_amount(gain.estimate, kind)} ({_bounds(gain, kind, signed=False)})"
    )
    if metric != "accuracy":
        change = _interval(chosen.gains["accuracy"], accuracy)
        answer += f", while the {_LABELS[accuracy]} is not clearly different: {change}"
    return f"{answer}."


def _reasons(recommendation: Recommendation, accuracy: str = "accuracy") -> list[str]:
    chosen, runner_up, metric = recommendation.chosen, recommendation.runner_up, recommendation.metric
    if chosen is None or metric is None:
        return []
    kind = accuracy if metric == "accuracy" else metric
    reasons = []
    if runner_up is not None:
        reason = (
            "it is less simple" if recommendation.why == "simpler" else "it costs accuracy where nothing has shifted"
        )
        reasons.append(
            f"{_named(runner_up)} gains {_amount(runner_up.gains[metric].estimate, kind)}, which is not clearly more, "
            f"and {reason}."
        )
    elif len(recommendation.comparisons) > 1:
        reasons.append(f"It has the best {_LABELS[kind]} of all that were compared.")
    if metric == "accuracy" and "brier" in chosen.gains:
        brier = chosen.gains["brier"]
        clear = (
            "is not clearly different" if brier.low <= 0 <= brier.high else "is better" if brier.low > 0 else "is worse"
        )
        reasons.append(f"Its Brier score {clear}: {_interval(brier, 'brier')}.")
    return reasons


def _on_reference(chosen: Comparison, where: str) -> list[str]:
    gain = chosen.on_reference.get("accuracy")
    if gain is None:
        return []
    if is_below_zero(gain):
        verdict = "costs accuracy"
    elif gain.low > 0:
        verdict = "gains accuracy"
    else:
        verdict = "changes little" if gain.high - gain.low < _NARROW else "may cost or gain accuracy"
    return [f"On {where} it {verdict}: {_interval(gain, 'accuracy')}."]


def _without_labels(shift: RealShift) -> list[str]:
    others = shift.strategies[1:]
    if not others:
        return [f"Nothing is compared, since there is only the strategy {BASELINE}."]
    if shift.is_labelled:
        return ["Nothing is compared."]
    sentences = [
        "Leave the model alone for now: the new data has no labels, so nothing says which predictions are right."
    ]
    confidence = shift.strategies[0].metrics["confidence"]
    sentences += [
        f"{_named_strategy(measured.strategy, measured.batch_size)} would predict "
        f"{100 * (1 - measured.agreement):.1f} % of the {shift.pictures:,} images differently from {BASELINE}, with a "
        f"mean confidence of {100 * measured.metrics['confidence']:.1f} % instead of {100 * confidence:.1f} %."
        for measured in others
        if measured.batch_size == others[-1].batch_size
    ]
    sentences.append(
        "To know what helps, label those that would change (changes.csv lists them): where two strategies agree, they "
        "are right or wrong together."
    )
    return sentences


def _class_order(shift: RealShift) -> list[str]:
    """Warn if batches hold few classes: often that is the order of the files, and not of the images."""
    size = max(strategy.batch_size for strategy in shift.strategies)
    held, classes = shift.classes_per_batch(size), len(shift.classes)
    if held is None or held >= _FEW_CLASSES * min(size, classes) or str(shift.frame["order"].iloc[0]) != "official":
        return []
    return [
        f"A batch of {size} holds {held:.1f} of {classes} classes on average, in the order of the file names: if the "
        "data does not really arrive like that, add --order shuffled."
    ]


def _too_little(measured: UnderCorruptions) -> list[str]:
    if BASELINE not in set(measured.frame["strategy"]) or measured.frame["strategy"].nunique() < 2:
        return [f"Nothing is recommended, since the results do not have {BASELINE} together with another strategy."]
    return [
        "Nothing is recommended: with so few corruptions there is no interval over corruptions, and without hits none "
        "over images; measure more corruptions, or keep the hits (--hits)."
    ]


def _named(comparison: Comparison) -> str:
    return _named_strategy(comparison.candidate.strategy, comparison.candidate.batch_size)


def _named_strategy(strategy: str, batch_size: int | None) -> str:
    short = Setting.parse(strategy).short
    if batch_size is None:
        return short
    return f"{short} in batches of {batch_size}" if batch_size > 1 else f"{short} on single images"


def _interval(gain: Interval, metric: str) -> str:
    """The change of a metric and its bounds; a Brier score falls if it gains."""
    sign = -1 if metric == "brier" else 1
    low, high = sorted((sign * gain.low, sign * gain.high))
    return f"{_change(sign * gain.estimate, metric)} ({_bounds(Interval(0, low, high, gain.level), metric)})"


def _bounds(interval: Interval, metric: str, *, signed: bool = True) -> str:
    if math.isinf(interval.low):
        return "too few for an interval"
    low, high = (_number(bound, metric, signed=signed) for bound in (interval.low, interval.high))
    return f"{100 * interval.level:.0f} % interval {low} to {high}"


def _value(value: float, metric: str) -> str:
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.3f}"


def _amount(value: float, metric: str) -> str:
    return _number(value, metric, signed=False) + (" points" if metric == "accuracy" else "")


def _change(value: float, metric: str) -> str:
    return _number(value, metric, signed=True) + (" points" if metric == "accuracy" else "")


def _number(value: float, metric: str, *, signed: bool) -> str:
    number = f"{100 * value:+.1f}" if metric == "accuracy" else f"{value:+.3f}"
    return (number if signed else number.lstrip("+")).replace("-", "−")
