"""The softmax."""

from __future__ import annotations

import pytest
import torch

from predbn.methods import Vanilla


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_it_is_the_softmax_in_float32_or_better(dtype):
    logits = torch.randn(40, 7).to(dtype)
    found = Vanilla().probabilities([logits])
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found, logits.to(found.dtype).softmax(1))
    assert torch.equal(found, Vanilla().probabilities(logits))
