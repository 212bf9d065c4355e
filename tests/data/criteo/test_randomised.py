"""Each randomisation replaces what it should, as often as it should, for any batches."""

import pytest
import torch

from predbn.data import DataError, ShiftedDataset
from predbn.data.criteo import PERCENTAGES, Randomised, Rows, synthetic_rows

TABLE = torch.from_numpy(synthetic_rows(3000, seed=0).table)
TRAIN, TEST = Rows(TABLE[:1000], "train"), Rows(TABLE[1000:], "test", first=1000)
SPLITS = Randomised(TEST, train=TRAIN, seed=4)


def inputs(name: str, severity: int, size: int = 500, splits: Randomised = SPLITS, **options) -> torch.Tensor:
    return torch.cat([batch.inputs for batch in splits.batches(name, severity, size, **options)])


def test_it_is_a_shifted_data_set():
    assert isinstance(SPLITS, ShiftedDataset)
    assert SPLITS.names == ["tokens", "columns", "marginals"]
    assert Randomised(TEST).names == ["tokens", "columns"]
    assert torch.equal(inputs("clean", 0), TABLE[1000:, 1:])
    for batch in SPLITS.batches("tokens", 95, 700):
        assert torch.equal(batch.labels, TABLE[batch.index, 0].long())


@pytest.mark.parametrize("severity", PERCENTAGES)
def test_values_are_replaced_with_the_probability(severity):
    clean = TABLE[1000:, 1:]
    tokens = inputs("tokens", severity) != clean
    assert not tokens[:, :13].any()
    assert tokens[:, 13:].float().mean() == pytest.approx(severity / 100, abs=0.01)
    columns = inputs("columns", severity) != clean
    assert not columns[:, :13].any()
    blocks = columns[:, 13:].reshape(4, 500, 26).float().mean(1)
    assert ((blocks == 0) | (blocks == 1)).all()
    resampled = inputs("marginals", severity)
    assert all(torch.isin(resampled[:, f], TABLE[:, f + 1]).all() for f in range(39))
    assert ((resampled != clean).float().mean() / (severity / 100)) == pytest.approx(0.8, abs=0.12)


@pytest.mark.parametrize("name", SPLITS.names)
def test_neither_batches_nor_order_nor_other_percentages_matter(name):
    whole = inputs(name, 50)
    order = [5, 1999, 3, 700]
    assert torch.equal(inputs(name, 50, 3, order=order), whole[order])
    assert torch.equal(inputs(name, 50, 2000), whole)
    clean, more = TABLE[1000:, 1:], inputs(name, 75)
    moved = whole != clean
    assert torch.equal(whole[moved], more[moved])
    assert not torch.equal(inputs(name, 50, splits=SPLITS.seeded(5)), whole)


def test_missing_splits_and_severities_are_errors():
    with pytest.raises(DataError, match="no split 'fog'"):
        SPLITS.batches("fog", 5, 10)
    with pytest.raises(DataError, match="severity is 20, but tokens has 5, 10, 25"):
        SPLITS.batches("tokens", 20, 10)
    with pytest.raises(DataError, match="no split 'marginals'"):
        Randomised(TEST).batches("marginals", 5, 10)
    with pytest.raises(DataError, match="block is 0"):
        Randomised(TEST, block=0)
