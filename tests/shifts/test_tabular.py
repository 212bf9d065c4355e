"""Feature randomisation removes the relations between features and nothing else."""

import numpy as np
import pytest
import torch
from scipy import stats

from predbn.shifts import ShiftError, randomise_features, randomise_tokens

ROWS = np.random.default_rng(0).normal(size=(4000, 1)) * [1.0, 2.0, -3.0] + 5.0


def randomised(
    rows: np.ndarray, p: float, *, marginals: np.ndarray = ROWS, seed: int = 0, index=range(4000)
) -> np.ndarray:
    table, values = torch.from_numpy(rows), torch.from_numpy(marginals)
    return randomise_features(table, p, marginals=values, seed=seed, index=index).numpy()


def test_replaces_with_probability_p_from_the_marginal() -> None:
    done = randomised(ROWS, 0.3)
    changed = done != ROWS
    assert changed.mean() == pytest.approx(0.3, abs=0.02)
    assert np.corrcoef(changed.T)[0, 1] == pytest.approx(0, abs=0.06)
    for column in range(3):
        assert stats.ks_2samp(done[:, column], ROWS[:, column]).pvalue > 1e-3
        assert np.isin(done[:, column], ROWS[:, column]).all()
    assert np.corrcoef(ROWS.T)[0, 1] == pytest.approx(1)
    assert np.corrcoef(done.T)[0, 1] == pytest.approx(0.7**2, abs=0.05)


def test_does_not_depend_on_the_batch_and_grows_with_p() -> None:
    def run(p: float, start: int, stop: int) -> np.ndarray:
        return randomised(ROWS[start:stop], p, seed=1, index=range(start, stop))

    assert np.array_equal(run(0.5, 10, 20), run(0.5, 0, 100)[10:20])
    few, many = run(0.2, 0, 500), run(0.6, 0, 500)
    moved = few != ROWS[:500]
    assert np.array_equal(few[moved], many[moved])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: randomised(ROWS, 1.5), "between 0 and 1"),
        (lambda: randomised(ROWS, 0.5, marginals=ROWS[:, :2]), "same columns"),
        (lambda: randomised(ROWS, 0.5, marginals=ROWS[:0]), "no rows"),
        (lambda: randomised(ROWS, 0.5, index=[0]), "for each of 4000 rows"),
        (lambda: randomise_tokens(torch.zeros(3, 2), 0.5, seed=0, index=range(3)), "int32"),
    ],
)
def test_wrong_input(call, message) -> None:
    with pytest.raises(ShiftError, match=message):
        call()


def test_random_tokens_are_uniform_and_groups_are_replaced_together() -> None:
    tokens = torch.zeros(4000, 6, dtype=torch.int32)
    done = randomise_tokens(tokens, 0.3, seed=0, index=range(4000))
    changed = done != 0
    assert changed.float().mean() == pytest.approx(0.3, abs=0.02)
    halves = np.histogram(done[changed].numpy(), 16, (-(2**31), 2**31))[0]
    assert stats.chisquare(halves).pvalue > 1e-3
    assert torch.equal(randomise_tokens(tokens[7:9], 0.3, seed=0, index=[7, 8]), done[7:9])
    groups = torch.arange(4000) // 40
    together = randomise_tokens(tokens, 0.3, seed=0, index=range(4000), together=groups) != 0
    shares = together.reshape(100, 40, 6).float().mean(1)
    assert ((shares == 0) | (shares == 1)).all()
    assert shares.mean() == pytest.approx(0.3, abs=0.08)
