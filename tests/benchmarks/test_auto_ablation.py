"""The forms of `auto` that its terms are measured with."""

from __future__ import annotations

import torch

import predbn
from auto_ablation import FORMS, AblatedAuto

from ..norm.models import images, net


@torch.no_grad()
def test_with_all_terms_it_is_auto_and_every_other_form_differs():
    model = predbn.calibrate(net(), list(images(96).split(32)))
    x = 0.2 * images(12, seed=5, shift=1.0)
    expected = predbn.adapt(model, "auto(passes=1)", group=4, robust=False)(x)
    found = {
        form: predbn.adapt(model, AblatedAuto(**switches), group=4, robust=False)(x) for form, switches in FORMS.items()
    }
    torch.testing.assert_close(found.pop("all terms"), expected, rtol=1e-4, atol=1e-5)
    assert all((other - expected).abs().max() > 1e-4 for other in found.values())
