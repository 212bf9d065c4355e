"""The Criteo network: what goes in, and what comes out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from predbn.data.criteo import synthetic_rows
from predbn.data.criteo.columns import MISSING_NUMBER
from predbn.models import ClickModel, CriteoNetwork, CriteoSizes, ModelError, load_criteo
from predbn.models.criteo import PrepareRows, RowPreprocessing
from predbn.models.weights import write_weights

SMALL = CriteoSizes(widths=(16, 8)).limited(buckets=40, dimensions=3)
TABLE = torch.from_numpy(synthetic_rows(4200, seed=0).table)
INPUTS = TABLE[:, 1:]


def model(seed: int = 0) -> ClickModel:
    """A network whose running statistics have seen some rows."""
    torch.manual_seed(seed)
    made = ClickModel(CriteoNetwork(SMALL, momentum=0.5))
    with torch.no_grad():
        for part in INPUTS[:2048].split(256):
            made.train()(part)
    return made.eval()


def test_preparation_value_by_value():
    buckets = tuple(range(1, 27))
    values, result = PrepareRows(RowPreprocessing(buckets))(INPUTS[:50])
    for row, numbers, places in zip(INPUTS[:50].tolist(), values.tolist(), result.tolist(), strict=True):
        for raw, number in zip(row[:13], numbers, strict=True):
            raw = -1 if raw == MISSING_NUMBER else raw
            assert number == pytest.approx(math.copysign(math.log1p(abs(raw)), raw), abs=1e-6)
        assert places == [(token % 2**32) * count // 2**32 for token, count in zip(row[13:], buckets, strict=True)]


def test_the_network_is_the_one_described():
    made, sizes = model(), SMALL
    numbers, buckets = made.prepare(INPUTS[:7])
    parts = [numbers]
    hot = []
    for column, (count, size) in enumerate(zip(sizes.buckets, sizes.dimensions, strict=True)):
        if size is None:
            hot.append(F.one_hot(buckets[:, column], count).float())
        else:
            parts.append(made.network.embeddings[f"C{column + 1}"].weight[buckets[:, column]])
    x = torch.cat([*parts, *hot], 1)
    assert x.shape[1] == sizes.features
    norm = made.network.norm
    x = (x - norm.running_mean) / (norm.running_var + 1e-3).sqrt() * norm.weight + norm.bias
    for linear in made.network.hidden:
        x = (x @ linear.weight.T + linear.bias).clamp_min(0)
    logit = (x @ made.network.last.weight.T + made.network.last.bias)[:, 0]
    assert_close(made(INPUTS[:7]).softmax(1)[:, 1], logit.sigmoid(), atol=1e-5, rtol=1e-4)


def test_the_reference_sizes():
    sizes = CriteoSizes()
    assert sizes.widths == (2572, 1454, 1596)
    assert sizes.features == 13 + 328 + 701
    assert CriteoSizes.from_dict(SMALL.to_dict()) == SMALL
    assert max(SMALL.buckets) == 40
    everything = CriteoSizes(dimensions=(2,) * 26, widths=(4,))
    assert CriteoNetwork(everything)(*PrepareRows(RowPreprocessing(everything.buckets))(INPUTS[:3])).shape == (3, 2)


def test_weights_come_back_with_their_sizes(tmp_path):
    made = model()
    path = tmp_path / "0.safetensors"
    write_weights(path, made.network.state_dict(), {"sizes": SMALL.to_dict(), "eps": 1e-3})
    loaded = load_criteo(path)
    assert loaded.info.classes == 2
    assert loaded.info.preprocessing.describe()["buckets"] == list(SMALL.buckets)
    with torch.no_grad():
        assert_close(loaded(INPUTS[:9]), made(INPUTS[:9]), atol=2e-2, rtol=1e-2)
    write_weights(path, made.network.state_dict())
    with pytest.raises(ModelError, match="no card with the sizes"):
        load_criteo(path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CriteoSizes(buckets=(3,)), "Expected buckets to have 26 numbers, one per category, but got 1"),
        (lambda: CriteoSizes(widths=(5, 0)), "to be at least 1, but got 0"),
        (lambda: model()(INPUTS.long()), r"The rows are int64 \[4200, 39\]"),
        (lambda: model()(TABLE), "the model takes int32"),
    ],
)
def test_wrong_sizes_and_rows(call, message):
    with pytest.raises(ModelError, match=message):
        call()
