"""The figure of spectra."""

from __future__ import annotations

import numpy as np

from predbn.report.figures import spectra
from predbn.report.save import specification

from ..conftest import values_of


def test_eigenvalues_by_rank(diagnosis):
    spec = specification(spectra(diagnosis, top=4))
    drawn = values_of(spec, spec)
    found = [row["variance"] for row in drawn if (row["place"], row["series"]) == ("logits", "shifted · train")]
    wanted = np.linalg.eigvalsh(diagnosis.before.logits.gaussian.covariance.numpy())[::-1][:4]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert {row["place"] for row in drawn} == {"embeddings", "logits"}
