"""Findings about a model without any data."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from predbn.diagnostics import examine

from ..norm.models import net


def _set(**values: Any) -> Callable[[Any], None]:
    """Change the second layer: buffers are filled, other attributes set."""

    def change(model: Any) -> None:
        for name, value in values.items():
            current = getattr(model.bn2, name)
            if isinstance(current, torch.Tensor) and value is not None:
                with torch.no_grad():
                    current.fill_(value)
            else:
                setattr(model.bn2, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "code", "severity", "words"),
    [
        (_set(running_mean=0.0, running_var=1.0), "never updated", "problem", "were reset"),
        (
            _set(running_mean=0.0, running_var=1.0, num_batches_tracked=0),
            "never updated",
            "problem",
            "no batch was ever",
        ),
        (_set(running_mean=0.0, running_var=1.0, momentum=0.0), "never updated", "problem", "frozen (momentum=0)"),
        (_set(running_var=torch.nan), "not finite", "problem", "not finite"),
        (_set(running_var=-1.0), "not finite", "problem", "below 0"),
        (_set(running_var=1e20), "exploded", "problem", "diverged"),
        (_set(running_var=0.0), "no variance", "problem", "constant inputs"),
        (_set(weight=torch.inf), "weights not finite", "problem", "diverged"),
        (_set(training=True), "train mode", "problem", "but not bn2"),
        (_set(eps=10.0), "eps", "note", "trained with this eps"),
        (_set(momentum=0.0), "frozen", "note", "momentum=0"),
        (_set(track_running_stats=False), "frozen", "note", "track_running_stats=False"),
        (_set(momentum=None), "momentum none", "note", "earlier weights"),
        (_set(running_mean=None, running_var=None), "no statistics", "note", "depends on the other examples"),
    ],
)
def test_one_layer(change: Callable[[Any], None], code: str, severity: str, words: str) -> None:
    model = net()
    change(model)
    (finding,) = examine(model).findings
    assert (finding.code, finding.severity, finding.layers) == (code, severity, ("bn2",))
    assert words in finding.sentence
    assert finding.remedy.endswith(".")


def test_a_model_in_training_mode_is_only_noted() -> None:
    (finding,) = examine(net().train()).findings
    assert (finding.code, finding.severity) == ("train mode", "note")
    assert len(finding.layers) == 3


def test_healthy() -> None:
    examination = examine(net())
    assert list(examination.findings) == []
    assert examination.is_healthy
    assert examination.verdict.startswith(
        "Nothing is wrong with the 3 batch norm layers as far as can be seen without data"
    )


def test_layers_of_a_frozen_class() -> None:
    class FrozenBatchNorm2d(nn.BatchNorm2d):
        """Named as those of torchvision and detectron2."""

    layer = FrozenBatchNorm2d(3)
    layer.running_mean.fill_(1.0)  # type: ignore[union-attr]
    (finding,) = examine(nn.Sequential(layer).eval()).findings
    assert finding.code == "frozen"
    assert "FrozenBatchNorm2d" in finding.sentence


def test_damaged_weights_are_not_measured_further() -> None:
    model = net()
    _set(weight=torch.nan)(model)
    examination = examine(model, torch.randn(64, 3, 6, 6))
    assert [finding.code for finding in examination.findings] == ["weights not finite"]
    assert examination.examples == {}
