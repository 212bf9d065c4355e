"""The figure of distances by layer."""

from __future__ import annotations

import pytest

from predbn.report.figures import depth
from predbn.report.save import specification

from ..conftest import values_of


def test_a_dot_for_every_layer_and_side(diagnosis):
    spec = specification(depth(diagnosis))
    chance, _, dots = spec["layer"]
    drawn = values_of(spec, dots)
    assert len(drawn) == 5 * 3
    frame = diagnosis.to_frame().set_index(["layer", "data", "strategy"])
    for row in drawn:
        wanted = frame.loc[(row["layer"], *row["series"].split(" · ")), "distance"]
        assert row["distance"] == pytest.approx(wanted, rel=1e-4)
    assert all(row["threshold"] >= 0.1 for row in values_of(spec, chance))
    assert dots["encoding"]["y"]["scale"]["domain"] == ["bn1", "bn2", "bn3", "embeddings", "logits"]
