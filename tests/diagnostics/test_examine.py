"""An examination names the cause of each complaint, its remedy fixes it, and it is silent about healthy networks."""

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
from predbn.diagnostics import Examination, examine
from predbn.models import load
from predbn.norm import named_layers

from ..norm.models import Net


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return doctor_cases.train(doctor_cases.network())


@pytest.fixture
def model(trained: nn.Module) -> nn.Module:
    return copy.deepcopy(trained)


def codes(examination: Examination) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in examination.findings]


@pytest.mark.parametrize("name", doctor_cases.NAMES)
def test_each_complaint_is_named_and_fixed(name: str, trained: nn.Module) -> None:
    case = doctor_cases.make(name, trained)
    examination = examine(case.model, case.reference, case.data)
    assert [finding.code for finding in examination.problems] == ([case.expected] if case.expected else [])
    assert examination.is_healthy == (not case.expected)
    before = doctor_cases.accuracy(case.model, case.test)
    case.remedy(case.model)
    after = doctor_cases.accuracy(case.model, case.test)
    if case.remedy_name:
        assert case.remedy_name.replace("1e-3", "0.001") in examination.problems[0].remedy
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
    examination = examine(backwards, doctor_cases.clean())
    assert [row.layer for row in examination.layers] == ["bn1", "bn2", "bn3"]
    (problem,) = examination.problems
    assert problem.code == "stale"
    assert problem.layers == ("bn2", "bn3")
    assert "bn2, the first of them in forward order, is the likely origin" in problem.sentence


def test_the_distances_are_those_of_the_whole_data_in_one_batch(model: nn.Module) -> None:
    """The first layer's input does not depend on how data is cut: its statistics have a closed form."""
    images = doctor_cases.clean()
    examination = examine(model, [images[:3], images[3:10], images[10:]], batch_size=64)
    inputs = model.conv1(images).detach().double()  # type: ignore[operator]
    var, mean = torch.var_mean(inputs, (0, 2, 3), correction=0)
    layer = model.bn1
    off = (mean - layer.running_mean) ** 2 + (var.sqrt() - layer.running_var.sqrt()) ** 2  # type: ignore[operator]
    expected = float((off / (layer.running_var + layer.eps)).mean().sqrt())  # type: ignore[operator]
    assert examination.layers[0].fit == pytest.approx(expected, rel=1e-4)
    assert examination.examples == {"reference": 500}


def test_the_noise_is_what_samples_of_the_same_data_show(model: nn.Module) -> None:
    """The typical distance between two samples, over twenty pairs of them."""
    images = doctor_cases.gratings(20 * 2 * 50, seed=7)[0].split(50)
    pairs = [examine(model, a, b).layers for a, b in zip(images[::2], images[1::2], strict=True)]
    for rows in zip(*pairs, strict=True):
        typical = torch.tensor([row.shift for row in rows]).square().mean().sqrt()
        noise = torch.tensor([row.shift_noise for row in rows]).mean()
        assert 0.8 < float(typical / noise) < 1.2


def test_a_shift_of_known_size() -> None:
    """x ~ N(2, 3²) becomes N(5, 3²): one standard deviation. The second layer sees it only with stored statistics."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    model[0].running_mean.fill_(2.0)
    model[0].running_var.fill_(9.0)
    model[1].running_mean.fill_(1e-3)
    x = torch.randn(4000, 4)
    first, second = examine(model, 2 + 3 * x[:2000], 5 + 3 * x[2000:]).layers
    assert first.shift == pytest.approx(1, abs=0.05)
    assert first.shift_recomputed == first.shift
    assert second.shift == pytest.approx(1, abs=0.05)
    assert second.shift_recomputed == pytest.approx(0, abs=1e-4)


def test_advice_never_rests_on_predictions_of_a_broken_network(trained: nn.Module) -> None:
    """One folder, statistics that are mixed up, data of two classes that has shifted.

    To name a strategy, or the classes that such a network predicts, would contradict that its statistics are wrong.
    """
    case = doctor_cases.make("statistics of the second layer mixed up", trained)
    images, labels = doctor_cases.gratings(1500, seed=9)
    data = doctor_cases.shift(images[labels < 2])
    examination = examine(case.model, case.reference, data)
    assert codes(examination) == [("stale", "problem"), ("shifted", "note")]
    assert examination.is_broken
    stale, shifted = examination.findings
    assert stale.remedy.startswith("Run predbn.recompute")
    assert shifted.remedy.startswith("Fix the stored statistics first")
    assert not any(word in shifted.sentence + shifted.remedy for word in ("redictions", "adapt", "batch statistics"))
    case.remedy(case.model)
    fixed = examine(case.model, case.reference, data)
    assert codes(fixed) == [("shifted", "problem"), ("few classes", "note")]
    assert '"auto"' in fixed.findings[0].remedy
    assert '"batch"' not in fixed.findings[0].remedy
    assert 'do not use "batch"' in fixed.findings[1].remedy


def test_a_layer_in_training_mode_does_not_hide_a_shift(model: nn.Module) -> None:
    model.bn2.train()
    examination = examine(model, doctor_cases.clean(), doctor_cases.shift(doctor_cases.clean()))
    assert codes(examination) == [("train mode", "problem"), ("shifted", "problem")]


@pytest.mark.parametrize(("value", "eps"), [(torch.nan, 1e-5), (0.0, 0.0)])
def test_statistics_that_cannot_be_compared_are_left_out(value: float, eps: float, model: nn.Module) -> None:
    model.bn2.running_var[3] = value  # type: ignore[index]
    model.bn2.eps = eps  # type: ignore[assignment]
    examination = examine(model, doctor_cases.clean(), doctor_cases.clean())
    assert examination.layers[1].fit is None
    assert ("not finite", ("bn2",)) in [(f.code, f.layers) for f in examination.problems] or value == 0
    json.dumps(examination.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", ["batch/0", "last/0", "group/0"])
def test_nothing_is_said_about_healthy_networks(name: str) -> None:
    model = load(f"zoo:resnet20-cifar10/{name}")
    assert not examine(model, sample("validation").images[:100], sample("test").images[:100]).findings


def test_a_shift_is_seen_where_the_stored_statistics_spoil_all_values(model: nn.Module) -> None:
    """The values behind a layer with a statistic that is not finite are compared with statistics of the batch."""
    model.bn1.running_mean[0] = torch.inf  # type: ignore[index]
    examination = examine(model, doctor_cases.clean(), doctor_cases.shift(doctor_cases.clean()))
    assert codes(examination)[:2] == [("not finite", "problem"), ("shifted", "note")]
    assert all(row.shift is not None and row.shift_recomputed is None for row in examination.layers)
    assert examination.layers[0].has_shifted


def test_few_classes_are_noted(model: nn.Module) -> None:
    images, labels = doctor_cases.gratings(1500, seed=9)
    examination = examine(model, doctor_cases.clean(), images[labels < 2])
    assert codes(examination) == [("shifted", "note"), ("few classes", "note")]
    assert "suffer" not in examination.findings[0].sentence
    assert examination.findings[0].remedy.startswith("Predictions of few classes do not show whether they suffer.")
    assert examination.verdict == "No problem found, but worth knowing: shifted, few classes."


def test_predictions_of_one_class_are_a_problem_that_the_verdict_names(model: nn.Module) -> None:
    images, labels = doctor_cases.gratings(3000, seed=9)
    examination = examine(model, doctor_cases.clean(), images[labels == 5])
    assert codes(examination) == [("one class predicted", "problem"), ("shifted", "note")]
    assert examination.verdict == "1 problem found: one class predicted."
    assert "are of class 5 in 9" in examination.findings[0].sentence or "in 100%" in examination.findings[0].sentence


def test_the_model_stays_as_it_is(model: nn.Module) -> None:
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    examine(model, doctor_cases.clean(), doctor_cases.clean())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(type(layer) is nn.BatchNorm2d for _, layer in named_layers(model))


def test_an_adapted_model_is_examined_as_it_was(model: nn.Module) -> None:
    plain = examine(model, doctor_cases.clean()).to_dict()
    predbn.adapt(model, "batch")
    assert examine(model, doctor_cases.clean()).to_dict() == plain
    assert predbn.describe(model)[0].strategy == "batch"


def test_progress_is_reported_for_both_sets_of_data(model: nn.Module) -> None:
    seen: list[tuple[int, int]] = []
    batches = list(doctor_cases.clean().split(100))
    examine(model, batches, batches, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 10) for done in range(1, 11)]


def test_the_result_is_plain_data(model: nn.Module) -> None:
    examination = examine(model, doctor_cases.clean(), doctor_cases.shift(doctor_cases.clean()))
    read = json.loads(json.dumps(examination.to_dict(), allow_nan=False))
    assert read["healthy"] is False
    assert read["findings"][0]["code"] == "shifted"
    assert read["findings"][0]["layers"]
    assert {row["layer"] for row in read["layers"]} == {"bn1", "bn2", "bn3"}
    assert read["verdict"] == examination.sentences()[0] == "1 problem found: shifted."


def test_outputs_that_are_not_classes(model: nn.Module) -> None:
    """Of a segmenter, only the layers are examined."""
    body = nn.Sequential(*list(model.children())[:-3])
    assert examine(body, doctor_cases.clean()).is_healthy
    (problem,) = examine(body, doctor_cases.clean(), doctor_cases.shift(doctor_cases.clean())).problems
    assert "What it does to the output is unknown" in problem.sentence
    body[1].running_var.mul_(9)  # type: ignore[operator]
    assert examine(body, doctor_cases.clean()).problems[0].code == "stale"


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

    examination = examine(WithHead().eval(), doctor_cases.clean())
    assert [(finding.code, finding.layers) for finding in examination.findings] == [("not called", ("body.auxiliary",))]


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
    reference, data = (doctor_cases.clean(), doctor_cases.shift(doctor_cases.clean()))
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
        for images in (reference, data)
    ]
    forward = (lambda model, batch: model(*batch["in"])) if kind == "forward" else None
    examination = examine(_Scaled(model), *given, forward=forward)
    expected = examine(model, reference, data)
    assert codes(examination) == codes(expected)
    assert examination.examples == expected.examples
    for row, expected_row in zip(examination.layers, expected.layers, strict=True):
        assert row.layer == f"inner.{expected_row.layer}"
        assert (row.fit, row.shift) == pytest.approx((expected_row.fit, expected_row.shift), rel=1e-4)


def test_lists_of_images_are_taken_as_they_come(model: nn.Module) -> None:
    """A list of three images of three channels is three examples, not one batch with three rows."""
    images = doctor_cases.clean()[:60]
    examination = examine(_Whole(model), [(list(three), "targets") for three in images.split(3)])
    assert examination.examples == {"reference": 60}
    assert examination.layers[0].fit == pytest.approx(examine(model, images).layers[0].fit, rel=1e-4)


class _Tokens(nn.Module):
    """Every example has 5 tokens, each a row of the layer's input, or a volume."""

    def __init__(self, *, is_volume: bool) -> None:
        super().__init__()
        self.bn = nn.BatchNorm3d(4) if is_volume else nn.BatchNorm1d(4)
        self.is_volume = is_volume

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.bn(x[..., None, None] if self.is_volume else x.transpose(1, 2).flatten(0, 1))
        return tokens.reshape(len(x), -1)


def test_the_rows_of_an_example_count_as_one_example() -> None:
    x = torch.randn(64, 4, 5, generator=torch.Generator().manual_seed(0)) + torch.arange(64.0)[:, None, None] / 16
    models = [_Tokens(is_volume=is_volume).eval() for is_volume in (False, True)]
    for model in models:
        model.bn.running_mean.fill_(1.0)
    rows, volume = (examine(model, x).layers[0] for model in models)
    assert rows.fit == pytest.approx(volume.fit, rel=1e-4)
    assert rows.fit_noise == pytest.approx(volume.fit_noise, rel=1e-4)


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
        examine(model, data)  # type: ignore[arg-type]


def test_wrong_models_and_arguments() -> None:
    with pytest.raises(DiagnosticError, match="but got a str"):
        examine("resnet")  # type: ignore[arg-type]
    with pytest.raises(DiagnosticError, match="returned None"):
        examine(_ReturnsNothing(), torch.randn(64, 3, 6, 6))
    with pytest.raises(AdaptationError, match="has not seen data"):
        examine(nn.Sequential(nn.LazyBatchNorm2d()))
    with pytest.raises(DiagnosticError, match="at least 2, but got 1"):
        examine(Net(), batch_size=1)
    with pytest.raises(DiagnosticError, match="Expected a reference with the data"):
        examine(Net(), data=torch.randn(64, 3, 6, 6))


def test_without_batch_norm() -> None:
    examination = examine(nn.Linear(2, 2), torch.randn(4, 2))
    assert examination == Examination(0)
    assert examination.verdict == "The model has no batch norm layer, so there are no statistics to examine."
