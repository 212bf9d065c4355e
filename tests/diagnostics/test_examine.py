"""The doctor names the cause of each complaint, its remedy mends it, and it says nothing about healthy networks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import doctor_cases
import predbn
from predbn.common import AdaptationError, DiagnosticError, PredbnError
from predbn.data import sample
from predbn.diagnostics import Examination, examine, measure
from predbn.models import load
from predbn.norm import named_layers
from predbn.shifts import corrupt

from ..norm.models import Net


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    torch.set_num_threads(1)
    return doctor_cases.train(doctor_cases.network())


@pytest.fixture
def model(trained: nn.Module) -> nn.Module:
    return copy.deepcopy(trained)


@pytest.mark.parametrize("name", doctor_cases.NAMES)
def test_each_complaint_is_named_and_mended(name: str, trained: nn.Module) -> None:
    case = doctor_cases.make(name, trained)
    found = examine(case.model, case.loader, case.reference)
    assert [finding.code for finding in found.problems] == ([case.expected] if case.expected else [])
    assert found.is_healthy == (not case.expected)
    before = doctor_cases.accuracy(case.model, case.test)
    case.remedy(case.model)
    after = doctor_cases.accuracy(case.model, case.test)
    if case.remedy_name:
        assert case.remedy_name.replace("1e-3", "0.001") in found.problems[0].remedy
        assert after > before + 3
    else:
        assert after == before > 90


def test_the_first_layer_that_is_off_is_named_in_the_order_of_the_calls(model: nn.Module) -> None:
    class LastFirst(nn.Module):
        """Registers its layers in the opposite order."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.names = [name for name, _ in inner.named_children()]
            for name, child in reversed(list(inner.named_children())):
                self.add_module(name, child)

        def forward(self, x: Tensor) -> Tensor:
            for name in self.names:
                x = self.get_submodule(name)(x)
            return x

    backwards = LastFirst(model)
    for name in ("bn2", "bn3"):
        model.get_submodule(name).running_mean += 3.0
    found = examine(backwards, reference=doctor_cases.clean())
    assert [row.layer for row in found.layers] == ["bn1", "bn2", "bn3"]
    (problem,) = found.problems
    assert problem.code == "stale"
    assert problem.layers == ("bn2", "bn3")
    assert "bn2, the first of them in forward order, is the likely origin" in problem.sentence


def test_the_distances_are_those_of_the_whole_data_in_one_batch(model: nn.Module) -> None:
    """The first layer's input does not depend on how data is cut: its statistics have a closed form."""
    images = doctor_cases.clean()
    found = examine(model, reference=[images[:3], images[3:10], images[10:]], batch_size=64)
    inputs = model.conv1(images).detach().double()  # type: ignore[operator]
    var, mean = torch.var_mean(inputs, (0, 2, 3), correction=0)
    layer = model.bn1
    off = (mean - layer.running_mean) ** 2 + (var.sqrt() - layer.running_var.sqrt()) ** 2  # type: ignore[operator]
    expected = float((off / (layer.running_var + layer.eps)).mean().sqrt())  # type: ignore[operator]
    assert found.layers[0].reference == pytest.approx(expected, rel=1e-4)
    assert found.examples == {"reference": 500}


def test_chance_is_what_samples_of_the_same_data_show(model: nn.Module) -> None:
    """The typical distance between two samples, over twenty pairs of them."""
    images = doctor_cases.gratings(20 * 2 * 50, seed=7)[0].split(50)
    pairs = [examine(model, a, b).layers for a, b in zip(images[::2], images[1::2], strict=True)]
    for rows in zip(*pairs, strict=True):
        typical = torch.tensor([row.shift for row in rows]).square().mean().sqrt()
        chance = torch.tensor([row.shift_chance for row in rows]).mean()
        assert 0.8 < float(typical / chance) < 1.2


def test_data_alone_cannot_tell_staleness_from_a_shift(model: nn.Module) -> None:
    found = examine(model, doctor_cases.shift(doctor_cases.clean()))
    (problem,) = found.problems
    assert problem.code == "unfit"
    assert "reference" in problem.remedy


def test_stale_and_shifted_at_once(trained: nn.Module) -> None:
    case = doctor_cases.make("statistics of the second layer mixed up", trained)
    found = examine(case.model, doctor_cases.shift(case.reference), case.reference)
    assert [(finding.code, finding.severity) for finding in found.findings][:2] == [
        ("stale", "problem"),
        ("shifted", "note"),
    ]
    assert "Mend the stored statistics first" in found.findings[1].remedy


def test_a_variance_and_an_eps_of_nought(model: nn.Module) -> None:
    model.bn2.running_var[3] = model.bn2.eps = 0.0  # type: ignore[index, assignment]
    found = examine(model, doctor_cases.clean(), doctor_cases.clean())
    json.dumps(found.to_dict(), allow_nan=False)


def test_statistics_that_are_not_finite_are_found_and_left_out(model: nn.Module) -> None:
    model.bn2.running_var[3] = torch.nan  # type: ignore[index]
    found = examine(model, doctor_cases.clean(), doctor_cases.clean())
    assert [(finding.code, finding.layers) for finding in found.problems] == [("not finite", ("bn2",))]
    assert found.layers[1].reference is None
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", ["batch/0", "last/0", "group/0"])
def test_nothing_is_said_about_healthy_networks(name: str) -> None:
    model = load(f"zoo:resnet20-cifar10/{name}")
    found = examine(model, sample("test").images[:100], sample("validation").images[:100])
    assert not found.findings


def test_corrupted_images_are_a_shift_and_not_stale() -> None:
    model = load("zoo:resnet20-cifar10/batch/0")
    images = corrupt(sample("test").images[:100], "contrast", 5, seed=0, index=torch.arange(100))
    found = examine(model, images, sample("validation").images[:100])
    assert [finding.code for finding in found.problems] == ["shifted"]


def test_a_shift_is_seen_where_the_stored_statistics_spoil_all_values(model: nn.Module) -> None:
    """The values behind a layer with a statistic that is not finite are compared with statistics of the batch."""
    model.bn1.running_mean[0] = torch.inf  # type: ignore[index]
    found = examine(model, doctor_cases.shift(doctor_cases.clean()), doctor_cases.clean())
    assert [finding.code for finding in found.findings][:2] == ["not finite", "shifted"]
    assert all(row.shift is not None and row.shift > 0.05 for row in found.layers[:1])
    assert all(row.shift is not None for row in found.layers)


def test_few_classes_are_noted(model: nn.Module) -> None:
    images, labels = doctor_cases.gratings(1500, seed=9)
    found = examine(model, images[labels < 2], doctor_cases.clean())
    assert "few classes" in [finding.code for finding in found.findings]
    assert found.is_healthy


def test_the_model_stays_as_it_is(model: nn.Module) -> None:
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    examine(model, doctor_cases.clean(), doctor_cases.clean())
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(type(layer) is nn.BatchNorm2d for _, layer in named_layers(model))


def test_an_adapted_model_is_examined_as_it_was(model: nn.Module) -> None:
    plain = examine(model, reference=doctor_cases.clean()).to_dict()
    predbn.adapt(model, "batch")
    assert examine(model, reference=doctor_cases.clean()).to_dict() == plain
    assert predbn.describe(model)[0].strategy == "batch"


def test_a_reference_can_be_measured_once(model: nn.Module) -> None:
    data, reference = doctor_cases.shift(doctor_cases.clean()), doctor_cases.clean()
    measured = measure(model, reference, "reference")
    assert examine(model, data, measured).to_dict() == examine(model, data, reference).to_dict()
    with pytest.raises(DiagnosticError, match="another model"):
        examine(copy.deepcopy(model), data, measured)


def test_progress_is_reported_for_both_sets_of_data(model: nn.Module) -> None:
    seen: list[tuple[int, int]] = []
    batches = list(doctor_cases.clean().split(100))
    examine(model, batches, batches, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 10) for done in range(1, 11)]


def test_the_result_is_plain_data(model: nn.Module) -> None:
    found = examine(model, doctor_cases.shift(doctor_cases.clean()), doctor_cases.clean())
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["healthy"] is False
    assert read["findings"][0]["code"] == "shifted"
    assert read["findings"][0]["layers"]
    assert {row["layer"] for row in read["layers"]} == {"bn1", "bn2", "bn3"}
    assert read["verdict"] == "1 problem found: shifted."


def test_outputs_that_are_not_classes(model: nn.Module) -> None:
    """Of a segmenter, only the layers are looked at."""
    body = nn.Sequential(*list(model.children())[:-3])
    assert examine(body, reference=doctor_cases.clean()).is_healthy
    body[1].running_var.mul_(9)  # type: ignore[operator]
    assert examine(body, reference=doctor_cases.clean()).problems[0].code == "stale"


def test_a_layer_that_is_never_called_is_noted(model: nn.Module) -> None:
    model.auxiliary = nn.BatchNorm2d(4)
    model.auxiliary.running_mean.fill_(1.0)  # type: ignore[operator]

    class WithHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = model

        def forward(self, x: Tensor) -> Tensor:
            for name, child in self.body.named_children():
                x = x if name == "auxiliary" else child(x)
            return x

    found = examine(WithHead().eval(), reference=doctor_cases.clean())
    assert [(finding.code, finding.layers) for finding in found.findings] == [("not called", ("body.auxiliary",))]


@dataclass
class _Sample:
    scale: Tensor
    pixels: Tensor
    names: list[str]


class _Scaled(nn.Module):
    """Takes two arguments: pixels and what to divide them by."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixels: Tensor, scale: Tensor) -> Tensor:
        output: Tensor = self.inner(pixels / scale[:, None, None, None])
        return output


class _Whole(nn.Module):
    """Takes a list of images, as detectors do, or a batch that only it can read."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: list[Tensor]) -> Tensor:
        output: Tensor = self.inner(torch.stack(images))
        return output


@pytest.mark.parametrize("kind", ["tuple", "dict", "dataclass", "forward"])
def test_batches_of_every_kind(kind: str, model: nn.Module) -> None:
    """The same images give the same findings, in whatever they come and however they are cut."""
    data, reference = (doctor_cases.shift(doctor_cases.clean()), doctor_cases.clean())
    scale = 1 + torch.arange(500) % 3 * 1.0
    make: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "tuple": lambda pixels, scale: (pixels, scale, "not an argument"),
        "dict": lambda pixels, scale: {"scale": scale, "pixels": pixels, "labels": scale},
        "dataclass": lambda pixels, scale: _Sample(scale, pixels, ["a.png"] * len(pixels)),
        "forward": lambda pixels, scale: {"in": [pixels, scale]},
    }
    sizes = [100] * 5 if kind == "forward" else [7, 33, 210, 250]
    given = [
        [
            make[kind](*parts)
            for parts in zip((images * scale[:, None, None, None]).split(sizes), scale.split(sizes), strict=True)
        ]
        for images in (data, reference)
    ]
    forward = (lambda model, batch: model(*batch["in"])) if kind == "forward" else None
    found = examine(_Scaled(model), *given, forward=forward)
    expected = examine(model, data, reference)
    assert [finding.code for finding in found.findings] == [finding.code for finding in expected.findings]
    assert found.examples == expected.examples
    for row, other in zip(found.layers, expected.layers, strict=True):
        assert row.layer == f"inner.{other.layer}"
        assert (row.reference, row.shift) == pytest.approx((other.reference, other.shift), rel=1e-4)


def test_lists_of_images_are_taken_as_they_come(model: nn.Module) -> None:
    """A list of three images of three channels is three examples, not one batch with three rows."""
    images = doctor_cases.clean()[:60]
    found = examine(_Whole(model), reference=[(list(three), "targets") for three in images.split(3)])
    expected = examine(model, reference=images)
    assert found.examples == {"reference": 60}
    assert found.layers[0].reference == pytest.approx(expected.layers[0].reference, rel=1e-4)


def _ends_early() -> Iterator[Tensor]:
    yield doctor_cases.clean()[:10]


class _ReturnsNothing(Net):
    def forward(self, x: Tensor) -> None:  # type: ignore[override]
        super().forward(x)


@pytest.mark.filterwarnings("ignore:layer 'bn1' got 64 examples")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "has 0 examples"),
        (_ends_early(), "has 10 examples"),
        ([("image.png", 3)], "gave a str without tensors"),
        (torch.full((64, 3, 16, 16), torch.nan), "only 0 of 64 examples reach bn1"),
    ],
)
def test_wrong_data(data: object, message: str, model: nn.Module) -> None:
    with pytest.raises(PredbnError, match=message):
        examine(model, reference=data)  # type: ignore[arg-type]


def test_wrong_models() -> None:
    with pytest.raises(DiagnosticError, match="is a str"):
        examine("resnet")  # type: ignore[arg-type]
    with pytest.raises(DiagnosticError, match="returned nothing"):
        examine(_ReturnsNothing(), reference=torch.randn(64, 3, 6, 6))
    with pytest.raises(AdaptationError, match="has not seen data"):
        examine(nn.Sequential(nn.LazyBatchNorm2d()))
    with pytest.raises(DiagnosticError, match="batch_size is 1"):
        examine(Net(), batch_size=1)


def test_without_batch_norm() -> None:
    found = examine(nn.Linear(2, 2), torch.randn(4, 2))
    assert found == Examination(0)
    assert found.verdict == "The model has no batch norm layer, so there are no statistics to examine."
