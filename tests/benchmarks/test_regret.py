"""The regret table: its orders, its crops, its split, and a run over a small subject that is continued."""

from __future__ import annotations

import argparse
import json
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

import regret
from predbn.common import DataError
from regret_cases import split
from regret_cases.data import load
from regret_cases.networks import NETWORKS, random_crops
from regret_cases.orders import ORDERS, batches
from regret_cases.shifts import FEATURES, PICTURES, shifted
from regret_cases.subjects import Labelled, Subject, small

LABELS = torch.arange(600) % 6


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 20, 100])
def test_batches_are_full_and_the_same_for_the_same_seed(order, size):
    chosen = batches(LABELS, order, size, 300, seed=1)
    assert [len(rows) for rows in chosen] == [size] * (300 // size)
    assert all(len(set(rows)) == size for rows in chosen) or order == "bursts"
    again = batches(LABELS, order, size, 300, seed=1)
    assert all((a == b).all() for a, b in zip(chosen, again, strict=True))


def test_orders_differ_in_the_classes_of_a_batch():
    classes = {
        order: [Counter(LABELS[rows].tolist()) for rows in batches(LABELS, order, 50, 600, seed=0)] for order in ORDERS
    }
    assert all(len(counts) == 6 for counts in classes["mixed"])
    assert sum((Counter(counts) for counts in classes["mixed"]), Counter()) == Counter(LABELS.tolist())
    assert all(len(counts) == 1 for counts in classes["sorted"])
    assert {len(counts) for counts in classes["two classes"]} == {2}
    assert np.mean([max(counts.values()) for counts in classes["bursts"]]) > 25


@pytest.mark.parametrize(("border", "mode"), [("black", "constant"), ("reflected", "reflect")])
def test_a_crop_is_a_part_of_the_padded_picture_or_of_its_mirror_image(border, mode):
    pictures = torch.rand(30, 2, 5, 5)
    crops = random_crops(pictures, border, 2, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(pictures, [2] * 4, mode=mode)
    places = set()
    for crop, picture in zip(crops, padded, strict=True):
        matching = [
            (i, j, mirrored)
            for i in range(5)
            for j in range(5)
            for mirrored in (False, True)
            if torch.equal(crop.flip(-1) if mirrored else crop, picture[:, i : i + 5, j : j + 5])
        ]
        assert matching
        places.add(matching[0])
    assert len({i for i, _, _ in places}) == len({j for _, j, _ in places}) == 5
    assert {mirrored for _, _, mirrored in places} == {False, True}


def test_the_split_has_every_network_once_and_half_of_the_shifts():
    names = [*split.DEVELOPMENT, *split.TEST]
    assert len(set(names)) == len(names)
    assert {name for name in names if not name.startswith("natural/")} == set(NETWORKS)
    for shifts in (PICTURES, FEATURES):
        assert Counter(half for half, _ in shifts.values()) == {half: len(shifts) // 2 for half in split.NETWORKS}


def test_shifts_keep_pictures_in_their_range_and_change_them():
    pictures = 0.8 * torch.rand(4, 1, 8, 8) + 0.1
    for name, (_, shift) in PICTURES.items():
        values = shifted(pictures, shift, seed=0)
        assert values.shape == pictures.shape, name
        assert values.min() >= 0, name
        assert values.max() <= 1, name
        assert not torch.equal(values, pictures), name
        assert torch.equal(values, shifted(pictures, shift, seed=0)), name


def test_missing_data_is_reported_with_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"'segments' needs .*segment\.csv\.zip, which does not exist: fetch it"):
        load("segments", tmp_path)


def test_the_shifted_sets_of_a_network_are_those_of_its_half(tmp_path, monkeypatch):
    monkeypatch.setattr("regret_cases.subjects.trained", lambda name, folder: NETWORKS[name].build())
    mnist = {"MNIST": (torch.zeros(1), torch.zeros(1))}
    monkeypatch.setattr("regret_cases.subjects.related", lambda name, folder: mnist)
    subject = small("digits/mlp", tmp_path, "test")
    assert list(subject.sets)[:2] == ["clean", "gain 0.5"]
    assert "contrast 0.4" not in subject.sets
    assert "MNIST" not in subject.sets
    clean, dark = subject.sets["clean"]().inputs, subject.sets["gain 0.5"]().inputs
    torch.testing.assert_close(dark, clean / 2)


@pytest.fixture
def subject():
    """Two classes that differ in their second feature; batch norm removes the shift of both, and their difference."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    inputs = torch.randn(400, 2, generator=draws) * 0.3
    inputs[:, 1] += 4.0 * labels - 2
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).eval()
    norm, linear = model
    norm.running_mean, norm.running_var = inputs.mean(0), inputs.var(0)
    linear.weight.data, linear.bias.data = torch.tensor([[0.0, -1.0], [0.0, 1.0]]), torch.zeros(2)
    sets = {
        "clean": lambda: Labelled(inputs, labels, labels),
        "offset": lambda: Labelled(inputs + 5, labels, labels),
    }
    return Subject("toy", model, inputs, sets, sizes=(1,), orders=("mixed", "sorted"), calibrations=(200,))


def test_a_run_scores_every_strategy_and_is_continued(subject, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(regret, "subject_of", lambda name, options: subject)
    out = tmp_path / "regret.json"
    options = argparse.Namespace(half="development", strategies=["prior(N=64)"], out=out, device="cpu", examples=400)
    regret.run(["toy"], options)
    rows = regret.rows_of(out)
    scores = {(row["shift"], row["order"], row["batch_size"]): row["scores"] for row in rows}
    assert len(rows) == len(scores) == 6
    assert scores["clean", "mixed", 100]["train"] == 100
    assert scores["offset", "mixed", 100]["train"] == 50  # everything is on one side
    assert scores["offset", "mixed", 100]["batch"] == 100
    assert scores["clean", "sorted", 100]["batch"] < 60  # a single class has no second one to differ from
    assert scores["clean", "mixed", 1]["batch"] is None  # one value per channel has no variance
    content = json.loads(out.read_text())
    del content["units"]["toy | 200 | offset"]
    out.write_text(json.dumps(content))
    regret.run(["toy"], options)
    assert regret.rows_of(out) == rows
    text = regret.summary(rows)
    assert "4 cases with batches of 32 and more" in text
    regret.plot(rows, tmp_path / "regret.svg")
    assert (tmp_path / "regret.svg").read_text().startswith("<svg")


def test_regret_is_what_is_lost_to_the_better_baseline():
    rows = [
        {"scores": {"train": 90.0, "batch": 80.0, "auto": 85.0}},
        {"scores": {"train": 40.0, "batch": 70.0, "auto": 75.0}},
        {"scores": {"train": 60.0, "batch": None, "auto": 60.0}},
    ]
    assert regret.regrets(rows, "auto") == [5.0, -5.0, 0.0]
    assert regret.regrets(rows, "batch") == [10.0, 0.0]
