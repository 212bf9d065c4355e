"""The figure of confidence."""

from __future__ import annotations

import pytest

from predbn.report.figures import confidence
from predbn.report.save import specification

from ..conftest import values_of


def test_shares_sum_to_one(diagnosis):
    spec = specification(confidence(diagnosis))
    drawn = values_of(spec, spec)
    for series in ("reference · train", "shifted · train", "shifted · batch"):
        rows = [row for row in drawn if row["series"] == series]
        assert len(rows) == 21
        assert sum(row["share"] for row in rows[:-1] if row["low"] < 1) == pytest.approx(1, abs=1e-3)
