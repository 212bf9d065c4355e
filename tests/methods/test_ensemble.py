"""The ensemble against the mean of softmaxes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.methods import Ensemble, MethodError


@given(members=st.integers(1, 10), temperature=st.sampled_from([1.0, 0.5, 3.0]))
def test_it_is_the_mean_of_the_softmaxes(members, temperature):
    logits = [4 * torch.randn(9, 5, dtype=torch.float64) for _ in range(members)]
    wanted = sum((member / temperature).softmax(1) for member in logits) / members
    torch.testing.assert_close(Ensemble(temperature).probabilities(logits), wanted)


def test_certain_members_give_certainty():
    for members in range(1, 12):
        assert Ensemble().probabilities([torch.tensor([[200.0, 0.0]])] * members).max() <= 1
        assert Ensemble().probabilities([torch.tensor([[0.0, -torch.inf]])] * members).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.zeros(3, 2), "one or more members"),
        ([], "one or more members"),
        ([torch.zeros(3, 2), torch.zeros(4, 2)], r"shapes \[\(3, 2\), \(4, 2\)\]"),
    ],
)
def test_wrong_logits_are_an_error(logits, message):
    with pytest.raises(MethodError, match=message):
        Ensemble().probabilities(logits)
