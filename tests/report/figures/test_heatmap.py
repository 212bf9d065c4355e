"""The heat map: every cell, its sign and its place."""

import numpy as np
import pytest

from predbn.report.figures import heatmap

from ..conftest import values_of


def cells(frame, metric, **options):
    spec = heatmap(frame, metric, **options).to_dict()
    return {(row["row"], row["severity"]): row for layer in spec["layer"] for row in values_of(spec, layer)}


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("brier", -1)])
def test_better_is_positive_whichever_way_the_metric_points(frame, metric, sign):
    by_split = cells(frame, metric)
    assert len(by_split) == 96
    rows = frame.query("method == 'vanilla' and metric == @metric and corruption == 'fog' and severity == 4")
    train, batch = (rows.loc[rows["strategy"] == name, "value"].item() for name in ("train", "batch"))
    assert by_split["fog", 4]["gain"] == pytest.approx(sign * (batch - train), rel=1e-4)
    assert ("Clean test set", 0) in by_split


def test_the_scale_is_symmetric_about_zero(frame):
    spec = heatmap(frame, "accuracy").to_dict()
    scale = spec["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"][0] == -scale["domain"][1]
    assert scale["domainMid"] == 0


def test_families_head_their_corruptions(frame):
    domain = heatmap(frame, "accuracy").to_dict()["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert domain[:4] == ["Clean test set", "Noise", "gaussian noise", "shot noise"]
    assert domain[domain.index("Weather") - 1] == "gaussian blur"
    assert len(domain) == 1 + 4 + 19


def test_equal_or_infinite_values_can_be_drawn(frame):
    same = frame.assign(value=0.5)
    assert {row["text"] for row in cells(same, "accuracy").values()} == {"+0.0"}
    frame.loc[(frame["metric"] == "brier") & (frame["strategy"] == "train"), "value"] = np.inf
    assert {row["text"] for row in cells(frame, "brier").values()} == {"+∞"}
