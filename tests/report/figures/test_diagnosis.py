"""The figures of a diagnosis: distances by layer, spectra, confidence."""

from __future__ import annotations

import numpy as np
import pytest

from predbn.report.figures import confidence, depth, spectra
from predbn.report.figures.diagnosis import depth_styles, profile_style, profiles
from predbn.report.save import vega_lite_spec

from ..conftest import values_of


def test_a_dot_for_every_layer_and_profile(diagnosis):
    spec = vega_lite_spec(depth(diagnosis))
    chance, _, dots = spec["layer"]
    drawn = values_of(spec, dots)
    assert len(drawn) == 5 * 3
    frame = diagnosis.to_frame().set_index(["layer", "data", "strategy"])
    for row in drawn:
        expected = frame.loc[(row["layer"], *row["series"].split(" · ")), "distance"]
        assert row["distance"] == pytest.approx(expected, rel=1e-4)
    assert all(row["threshold"] >= 0.1 for row in values_of(spec, chance))
    assert dots["encoding"]["y"]["scale"]["domain"] == ["bn1", "bn2", "bn3", "embeddings", "logits"]


def test_eigenvalues_by_rank(diagnosis):
    spec = vega_lite_spec(spectra(diagnosis, top=4))
    drawn = values_of(spec, spec)
    found = [row["variance"] for row in drawn if (row["place"], row["series"]) == ("logits", "shifted · train")]
    expected = np.linalg.eigvalsh(diagnosis.before.logits.gaussian.covariance.numpy())[::-1][:4]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert {row["place"] for row in drawn} == {"embeddings", "logits"}


def test_shares_sum_to_one(diagnosis):
    spec = vega_lite_spec(confidence(diagnosis))
    drawn = values_of(spec, spec)
    for series in ("reference · train", "shifted · train", "shifted · batch"):
        rows = [row for row in drawn if row["series"] == series]
        assert len(rows) == 21
        assert sum(row["share"] for row in rows[:-1] if row["low"] < 1) == pytest.approx(1, abs=1e-3)


def test_three_profiles_and_their_styles(diagnosis):
    found = list(profiles(diagnosis))
    assert [style.series for style, _ in found] == ["reference · train", "shifted · train", "shifted · batch"]
    assert [profile for _, profile in found] == [diagnosis.reference, diagnosis.before, diagnosis.after]
    styles = [found[0][0], *depth_styles(diagnosis)]
    assert styles[1].series == "reference · batch"
    assert len({style.colour for style in styles}) == 4


def test_the_reference_is_hollow():
    assert profile_style("reference", "train").baseline
    assert not profile_style("shifted", "ema").baseline
