"""Diagnoses of known models under known shifts."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import predbn
from predbn.common import DiagnosticError
from predbn.data import Images
from predbn.diagnostics import diagnose, profile

from ..norm.models import images, net
from .models import linear, normal, one_layer


def data(n: int, mean: float, seed: int) -> list[torch.Tensor]:
    return list(normal(n, 3, 16, mean=mean, sd=3.0, seed=seed).split(100))


def test_a_shift_of_known_size_is_measured_and_undone():
    """x̄ ~ N(2, ¾²) becomes N(5, ¾²): every channel moves by 4 of its standard deviations. With the batch's statistics
    it is where the reference is with them."""
    model = one_layer()
    diagnosis = diagnose(model, data(2000, 2.0, 1), data(2000, 5.0, 2))
    (before,) = diagnosis.of("train", kind="batch norm")
    assert before.distance == pytest.approx(4.0, abs=0.1)
    assert before.apart == before.distance
    assert before.divergence == pytest.approx(3 * 4**2 / 2, rel=0.06)
    assert before.outside > 0.6
    (after,) = diagnosis.of("batch", kind="batch norm")
    assert after.apart < 2 * after.noise
    assert diagnosis.batch_size == 100
    assert [row.layer for row in diagnosis.of("train")] == ["bn", "embeddings", "logits"]
    for row in diagnosis.of("train", data="reference"):
        assert (row.distance, row.outside) == (0, 0)
        assert row.divergence == pytest.approx(0, abs=1e-9)


def test_nothing_has_shifted():
    diagnosis = diagnose(one_layer(), data(1000, 2.0, 1), data(1000, 2.0, 2))
    (row,) = diagnosis.of("train", kind="batch norm")
    assert row.distance < 3 * row.noise
    assert row.outside < 0.01


def test_the_channels_that_moved_most_come_first():
    reference, shifted = normal(500, 3, 16, mean=2.0), normal(500, 3, 16, mean=2.0, seed=1)
    shifted[:, 1] += 1
    shifted[:, 2] += 0.3
    assert diagnose(one_layer(), reference.split(100), shifted.split(100)).channels("bn") == [1, 2, 0]


def test_frames_and_plain_data():
    diagnosis = diagnose(net(), [images(8)], [images(8, shift=2.0)], strategy="prior(N=4)")
    frame = diagnosis.to_frame()
    assert len(frame) == 4 * 5 == len(frame.drop_duplicates(["layer", "data", "strategy"]))
    assert list(frame["kind"].unique()) == ["batch norm", "embeddings", "logits"]
    plain = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert plain["strategy"] == "prior(N=4)"
    assert [side["examples"] for side in plain["predictions"]] == [8] * 4


def test_a_model_without_batch_norm():
    diagnosis = diagnose(linear(), [normal(400, 6)], [normal(400, 6, seed=1, mean=1.0)])
    assert diagnosis.after is None
    assert {row.kind for row in diagnosis.shifts} == {"embeddings", "logits"}
    assert "no batch norm layer" in diagnosis.sentences()[-1]


def test_a_tensor_is_one_batch():
    reference, shifted = normal(300, 3, 16, mean=2.0, sd=3.0, seed=1), normal(200, 3, 16, mean=5.0, sd=3.0, seed=2)
    diagnosis, expected = (
        diagnose(one_layer(), *batches) for batches in ((reference, shifted), ([reference], [shifted]))
    )
    assert diagnosis.batch_size == 200
    assert diagnosis.of("train") == expected.of("train")
    assert profile(one_layer(), reference).count == 300


def test_data_sets_are_shuffled_the_same_way_every_time():
    pixels = torch.randint(0, 256, (40, 3, 6, 6), dtype=torch.uint8)
    labels = torch.arange(40) // 20
    data_set = Images(pixels, labels, torch.arange(40), ("a", "b"), "mine")
    model = nn.Sequential(Scale(), net())
    inputs: list[torch.Tensor] = []
    model[0].register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
    first, second = (diagnose(model, data_set, data_set, batch_size=16).to_frame() for _ in range(2))
    assert first.equals(second)
    assert [len(x) for x in inputs[:3]] == [16, 16, 8]
    assert not inputs[0].equal(pixels[:16])


class Scale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float() / 255


def test_progress_counts_batches():
    reports: list[tuple[int, int]] = []
    reference, shifted = data(300, 2.0, 1), data(200, 2.0, 2)
    diagnose(one_layer(), reference, shifted, progress=lambda *report: reports.append(report))
    assert reports == [(step, 8) for step in range(1, 9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "train"}, "compared with"),
        ({"strategy": "btach"}, "did you mean 'batch'"),
        ({"batch_size": 0}, "whole number"),
        ({"bins": 1}, "2 or more"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises((DiagnosticError, predbn.AdaptationError), match=message):
        diagnose(net(), [images()], [images()], **options)


def test_a_reference_that_can_be_read_once_is_refused():
    with pytest.raises(DiagnosticError, match="needed twice"):
        diagnose(net(), iter([images()]), [images()])
