"""What each strategy means in one sentence, and the order in which strategies are listed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from predbn.norm import strategies as strategy_names

_SENTENCES = {
    "train": "The statistics stored in training: the model as it is without adaptation.",
    "batch": "The mean and variance of the batch being predicted (prediction-time batch normalisation).",
    "prior": "The statistics of the batch mixed with those of training, which count as N examples.",
    "ema": "A moving average of the statistics over the batches of the stream.",
    "frozen": "The statistics of the first batches of the stream, kept for all later ones.",
    "population": "The statistics of a whole unlabelled data set (AdaBN).",
    "auto": "The statistics of the batch mixed with those of training: the clearer the shift, the more of the batch.",
    "auto_stream": "As auto, but with the statistics of the stream so far, which is forgotten when it changes.",
}


def strategy_sentences(strategies: Iterable[str]) -> list[tuple[str, str]]:
    """(name, sentence) of each strategy, once if it is there with several arguments, as in "prior(N=16)".

    Strategies that are not built in have no sentence and are left out.
    """
    names = dict.fromkeys(re.split(r"[(\[]", strategy)[0] for strategy in strategies)
    return [(name, _SENTENCES[name]) for name in names if name in _SENTENCES]


def strategy_order() -> list[str]:
    """All strategies by name, the baseline first; those that are not built in come last."""
    order = list(_SENTENCES)
    return sorted(strategy_names(), key=lambda name: (order.index(name) if name in order else len(order), name))
