"""What each strategy is called and does in one sentence, and the order in which strategies are listed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from predbn.common import PredbnError, short_spec
from predbn.norm import find_strategy
from predbn.norm import strategies as strategy_names

_SENTENCES = {
    "train": "The statistics stored in training: the model as it is without adaptation.",
    "batch": "The mean and variance of the batch being predicted (prediction-time batch normalisation).",
    "prior": "The statistics of the batch mixed with those of training, which count as N examples.",
    "ema": "A moving average of the statistics over the batches of the stream.",
    "frozen": "The statistics of the first batches of the stream, kept for all later ones.",
    "population": "The statistics of a whole unlabelled data set (AdaBN).",
    "auto": "The statistics of the batch mixed with those of training: the clearer the shift, the more of the batch. "
    "With passes=4, AutoPredictor predicts a batch one to four times, once if nothing has shifted.",
    "auto_stream": "As auto, but with the statistics of the stream so far, which is forgotten when it changes.",
}


def strategy_label(spec: str) -> str:
    """A strategy with only those arguments that are not the default.

    Results name a strategy with all its arguments, "auto(calibrated=True, passes=1)", whose label is "auto". Different
    strategies have different labels. A string that does not name a strategy is its own label.
    """
    name, bracket, options = spec.partition("[")
    try:
        strategy = find_strategy(name.strip())
    except PredbnError:
        return spec
    return short_spec(strategy.name, strategy) + bracket + options


def strategy_labels(specs: Iterable[str]) -> dict[str, str]:
    """The label of each strategy; specs of one and the same strategy stay as they are."""
    labels = {spec: strategy_label(spec) for spec in specs}
    counts = Counter(labels.values())
    return {spec: label if counts[label] == 1 else spec for spec, label in labels.items()}


def strategy_sentences(strategies: Iterable[str]) -> list[tuple[str, str]]:
    """(name, sentence) of each built-in strategy, once for all its arguments."""
    names = dict.fromkeys(re.split(r"[(\[]", strategy)[0] for strategy in strategies)
    return [(name, _SENTENCES[name]) for name in names if name in _SENTENCES]


def strategy_order() -> list[str]:
    """All strategies by name: the baseline first, custom ones last."""
    order = list(_SENTENCES)
    return sorted(strategy_names(), key=lambda name: (order.index(name) if name in order else len(order), name))
