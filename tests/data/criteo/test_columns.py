"""Tokens follow the formula of the docstring and spread evenly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from predbn.data.criteo.columns import hash_words, hex_words, token_of

from .examples import slow_token


@pytest.mark.parametrize("text", ["", "a", "68fd1e64", "deadbeef", "DEADBEEF", "too long to be one", "späti___"])
def test_a_token_is_the_hash_of_its_text(text):
    assert token_of(text.encode()) == slow_token(text)


def test_words_hold_the_digits():
    values = np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32)
    values[:3] = 0, 2**32 - 1, 0x09AF0A9F
    digits = hex_words(values)
    assert [word.tobytes().decode() for word in digits] == [f"{value:08x}" for value in values]
    assert hash_words(digits).tolist() == [slow_token(f"{value:08x}") for value in values]


@pytest.mark.parametrize("buckets", [3, 61, 1000])
def test_categories_fall_into_buckets_evenly(buckets):
    tokens = hash_words(hex_words(np.arange(100_000, dtype=np.uint32))).view(np.uint32).astype(np.uint64)
    counts = np.bincount((tokens * np.uint64(buckets) >> np.uint64(32)).astype(np.int64), minlength=buckets)
    assert stats.chisquare(counts).pvalue > 1e-4 or counts.std() < np.sqrt(counts.mean())
