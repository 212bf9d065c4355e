"""Each image of a mixture draws its kind from its index."""

import torch
from scipy import stats

from predbn.shifts import draw_kinds


def test_all_kinds_are_equally_likely_and_do_not_depend_on_the_batch() -> None:
    which = draw_kinds(19, seed=0, index=range(5000))
    assert stats.chisquare(torch.bincount(which, minlength=19).numpy()).pvalue > 1e-3
    assert torch.equal(draw_kinds(19, seed=0, index=[7, 4000]), which[[7, 4000]])
