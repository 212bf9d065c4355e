"""Recommendations under corruptions: from frames whose answer is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from predbn.evaluation import Results
from predbn.metrics import paired_interval
from predbn.recommendation import recommendation_sentences, under_corruptions

KEYS = {"model": "m", "method": "vanilla", "batch_size": 100, "order": "shuffled", "seed": 0}
CORRUPTIONS = ("fog", "snow", "frost", "contrast", "brightness", "pixelate")
IMAGES = 64


def rows(strategy: str, gain: float, corruptions=CORRUPTIONS, *, clean: float = 0.9, **keys) -> list[dict]:
    """Accuracies of a strategy: it gains more or less, depending on the corruption, and the same at all severities."""
    found = [{"corruption": "clean", "severity": 0, "value": clean}]
    for number, name in enumerate(corruptions):
        for severity in (1, 3, 5):
            value = 0.7 - 0.1 * severity + gain * (1 + 0.1 * number)
            found.append({"corruption": name, "severity": severity, "value": value})
    return [{**KEYS, **keys, "strategy": strategy, "metric": "accuracy", **row} for row in found]


def results(frame: list[dict], hits: list[dict] | None = None) -> Results:
    return Results(
        pd.DataFrame(frame), pd.DataFrame(), card={"data": {"images": IMAGES}}, hits=pd.DataFrame(hits or [])
    )


def hits(strategy: str, right: int, corruption: str = "fog") -> dict:
    """A strategy that is right on the first images."""
    packed = np.packbits(np.arange(IMAGES) < right).tobytes()
    severity = 0 if corruption == "clean" else 5
    return {**KEYS, "strategy": strategy, "corruption": corruption, "severity": severity, "hits": packed}


def test_severities_of_one_corruption_count_once():
    measured = results(rows("train", 0.0) + rows("batch", 0.1, clean=0.88))
    recommendation = under_corruptions(measured).recommendation
    assert recommendation.strategy == "batch"
    gains = [0.1 * (1 + 0.1 * number) for number in range(6)]
    expected = paired_interval(gains, [0.0] * 6)
    found = recommendation.chosen.gains["accuracy"]
    assert (found.estimate, found.low, found.high) == pytest.approx((expected.estimate, expected.low, expected.high))
    first, *others = recommendation_sentences(measured)
    assert first.startswith(
        "Use batch: the accuracy under these corruptions rises from 40.0 % to 52.5 %, by 12.5 points"
    )
    assert "On clean data it changes accuracy by −2.0 points." in others


def test_it_says_that_clean_data_was_not_measured():
    shifted = [row for row in rows("train", 0.0) + rows("batch", 0.1) if row["severity"]]
    first, *others = recommendation_sentences(results(shifted))
    assert first.startswith("Use batch: ")
    assert "What it costs on clean data was not measured: add --shift clean." in others


def test_with_few_corruptions_the_interval_is_over_images():
    frame = rows("train", 0.0, ("fog",)) + rows("batch", 0.1, ("fog",))
    assert "Nothing is recommended: with so few corruptions" in recommendation_sentences(results(frame))[0]
    kept = [hits("train", 20), hits("batch", 40), hits("train", 60, "clean"), hits("batch", 30, "clean")]
    first, *others = recommendation_sentences(results(frame, kept))
    assert first.startswith("Use batch: ")
    assert "On clean data it costs accuracy" in " ".join(others)
    assert "The intervals are over images." in others
    assert recommendation_sentences(results(frame, [hits("train", 20), hits("batch", 21)]))[0].startswith("Leave the")


@pytest.mark.parametrize(
    ("data", "corruptions", "is_said"),
    [
        ("new-camera", "corrupted on the fly", True),
        ("imagenet:val", "corrupted on the fly", False),
        ("mine-c", "as published", False),
    ],
)
def test_it_says_that_a_folder_was_taken_as_clean(data, corruptions, is_said):
    card = {"data": {"images": IMAGES, "corruptions": corruptions}, "plan": {"data": data}}
    measured = replace(results(rows("train", 0.0) + rows("batch", 0.1)), card=card)
    last = recommendation_sentences(measured)[-1]
    assert last.startswith(f"{data} was taken as clean data") == ("--reference" in last) == is_said


def test_settings_are_never_averaged():
    sorted_by_class = rows("train", 0.0, order="by_class") + rows("batch", -0.3, order="by_class")
    frame = rows("train", 0.0) + rows("batch", 0.1) + sorted_by_class + rows("batch", 0.5, batch_size=10)
    sentences = recommendation_sentences(results(frame))
    assert "by 12.5 points" in sentences[0]
    assert sentences[-1].endswith("This is for order shuffled, batch size 100.")


def test_what_does_not_help_is_not_recommended():
    assert recommendation_sentences(results(rows("train", 0.0) + rows("batch", -0.1)))[0].startswith(
        "Leave the model alone: every strategy has a clearly lower accuracy than train under these corruptions"
    )


def test_there_is_always_a_last_word():
    assert "do not have train together with another" in recommendation_sentences(results(rows("batch", 0.1)))[0]
    clean = [row for row in rows("train", 0.0) + rows("batch", 0.1) if row["severity"] == 0]
    assert "no corruption was measured" in recommendation_sentences(results(clean))[0]
