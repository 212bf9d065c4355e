"""The bootstrap over rows and networks against what it stands for: metrics of the drawn rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from predbn.data.criteo import Randomised, Rows, synthetic_rows
from predbn.models import ClickModel, CriteoNetwork, CriteoSizes
from predbn.paper.resampling import resample, weighted_auc

TABLE = torch.from_numpy(synthetic_rows(300, seed=0).table)
SIZES = CriteoSizes(widths=(8,)).limited(buckets=20, dimensions=2)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_the_area_is_that_of_rows_counted_as_often(seed, levels):
    random = np.random.default_rng(seed)
    scores, labels = random.integers(0, levels, 30) / levels, np.arange(30) % 2
    weights = random.integers(0, 4, (3, 30)) + (np.arange(30) < 2)
    expected = [roc_auc_score(np.repeat(labels, w), np.repeat(scores, w)) for w in weights]
    assert weighted_auc(scores, labels, weights.astype(float)) == pytest.approx(expected)


def test_it_is_centred_on_the_scores_and_as_wide_as_rows_make_it():
    torch.manual_seed(0)
    models = {f"m/{k}": ClickModel(CriteoNetwork(SIZES)).eval() for k in range(2)}
    data = Randomised(Rows([TABLE], "rows"), block=100)
    table = resample(
        data, models, [("clean", 0), ("tokens", 50)], strategies=("train", "batch"), batch_size=100, seeds=(0, 1)
    )
    assert len(table) == 2 * 2 * 2 * 1000
    clicks = np.stack([model(TABLE[:, 1:]).softmax(1)[:, 1].detach().double().numpy() for model in models.values()])
    labels = TABLE[:, 0].numpy()
    for metric, value, error in (
        ("auc", np.mean([roc_auc_score(labels, each) for each in clicks]), None),
        ("brier", np.mean(2 * (clicks - labels) ** 2), (2 * (clicks - labels) ** 2).mean(0).std() / 300**0.5),
    ):
        chosen = table[(table.metric == metric) & (table.corruption == "clean") & (table.strategy == "train")]["value"]
        assert chosen.mean() == pytest.approx(value, abs=4 * chosen.std() / 1000**0.5 + 1e-3)
        between = np.std([(2 * (each - labels) ** 2).mean() for each in clicks]) / 2**0.5
        if error is not None:
            assert chosen.std() == pytest.approx(np.hypot(error, between), rel=0.15)


def test_draws_are_shared_by_strategies():
    torch.manual_seed(0)
    models = {"m": ClickModel(CriteoNetwork(SIZES)).eval()}
    data = Randomised(Rows([TABLE], "rows"))
    one, other = (
        resample(data, models, [("clean", 0)], strategies=("train",), batch_size=size, seeds=(0,)) for size in (50, 300)
    )
    assert one["value"].to_numpy() == pytest.approx(other["value"].to_numpy(), abs=1e-6)
