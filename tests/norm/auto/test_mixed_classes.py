"""`auto` where the network may be sure of the wrong classes: which of two explanations of a batch is followed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.norm.auto import mixed_classes
from predbn.norm.auto.calibration import Calibration
from predbn.norm.auto.composition import Composition
from predbn.norm.auto.mixed_classes import SeenLayer, better_explanation, is_few, source_composition
from predbn.norm.statistics import Statistics

CLASSES, FEATURES = 10, 20
CENTRES = 3 * torch.eye(CLASSES).repeat(1, FEATURES // CLASSES)


def draw(classes: Tensor, seed: int) -> Tensor:
    noise = torch.randn(len(classes), FEATURES, generator=torch.Generator().manual_seed(seed))
    return CENTRES[classes] + 0.5 * noise


@pytest.fixture
def model() -> Iterator[nn.Module]:
    """A network that tells ten classes apart, calibrated on 1,000 examples."""
    x = draw(torch.arange(CLASSES).repeat(100), 0)
    first, last = nn.Linear(FEATURES, CLASSES, bias=False), nn.Linear(CLASSES, CLASSES, bias=False)
    network = nn.Sequential(nn.BatchNorm1d(FEATURES), first, nn.BatchNorm1d(CLASSES), last)
    with torch.no_grad():
        first.weight.copy_(CENTRES / 3)
        last.weight.copy_(4 * torch.eye(CLASSES))
        for layer in (network[0], network[2]):
            layer.momentum = None
        network.train()(x)
        network.eval()
        yield predbn.calibrate(network, list(x.split(100)))


def clean_layer(class_groups: Tensor | None = None) -> Calibration:
    sizes = torch.tensor([30.0, 50.0, 20.0])
    means, squares = torch.randn(3, 4, dtype=torch.float64).float(), torch.rand(3, 4) + 5
    shares = sizes / 100
    mean, square = shares @ means, shares @ squares
    return Calibration(
        100, 1.0, 0.5, 0.1, mean, square - mean**2, torch.full((4,), 0.25), sizes, means, squares, class_groups
    )


def test_what_is_left_of_a_difference_is_that_of_step_1() -> None:
    torch.manual_seed(0)
    clean, batch = clean_layer(), Statistics(torch.randn(4), torch.rand(4) + 1)
    z2 = (batch.mean - clean.mean) ** 2 / (clean.var + 1e-3)
    r = (batch.var + 1e-3) / (clean.var + 1e-3) + z2
    wanted = (0.25 * (z2 + (r - 1) ** 2 / 2)).sum()
    seen = SeenLayer(batch, clean, 1e-3)
    torch.testing.assert_close(torch.as_tensor(seen.difference(None)), wanted)
    shares = torch.tensor([1.0, 0.0, 0.0])
    one_class = Statistics(clean.class_means[0], clean.class_squares[0] - clean.class_means[0] ** 2)  # type: ignore[index]
    explained = SeenLayer(one_class, clean, 1e-3).difference(Composition(shares, 0.0))
    torch.testing.assert_close(torch.as_tensor(explained), torch.zeros(()), atol=1e-5, rtol=0)


@pytest.mark.parametrize("groups", [None, torch.tensor([0, 0, 1, 2, 2, 2])])
def test_the_mixed_explanation_has_the_shares_of_the_source(groups: Tensor | None) -> None:
    clean = clean_layer(groups)
    predicted = torch.zeros(2, 3 if groups is None else 6)
    predicted[:, 0] = 1
    mixed = source_composition(clean, Composition(predicted), 50)
    assert mixed.shares is not None
    torch.testing.assert_close(clean.group_shares(mixed.shares), torch.tensor([0.3, 0.5, 0.2]).expand(2, 3))
    # 2·b·u·Σ π² stands for b/n
    torch.testing.assert_close(2 * mixed.doubt * (0.3**2 + 0.5**2 + 0.2**2), torch.full((2, 1), 1 / 50))


def test_few_classes_are_more_uneven_than_chance_would_make_them() -> None:
    source = Composition(torch.full((10,), 0.1))
    one_class, even = Composition(torch.eye(10)[0]), Composition(torch.full((10,), 0.1))
    assert is_few(one_class, source, 20)
    assert not is_few(even, source, 20)
    assert not is_few(one_class, source, 1), "a single example has one class whatever its batch holds"


def test_each_stream_follows_its_own_explanation() -> None:
    few = Composition(torch.eye(2), torch.zeros(2, 1))
    mixed = Composition(torch.full((2, 2), 0.5), torch.full((2, 1), 0.2))
    left = torch.tensor([[3.0], [1.9]]), torch.tensor([[1.0], [1.0]])
    chosen = better_explanation(few, mixed, torch.tensor([[True], [True]]), *left)
    assert chosen.shares is not None
    torch.testing.assert_close(chosen.shares, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    torch.testing.assert_close(chosen.doubt, torch.tensor([[0.2], [0.0]]))
    nothing_suspicious = better_explanation(few, mixed, torch.tensor([[False], [False]]), *left)
    torch.testing.assert_close(nothing_suspicious.shares, few.shares)


def test_a_batch_of_one_class_stays_one(model: nn.Module) -> None:
    one_class, shifted = draw(torch.full((100,), 3), 1), draw(torch.arange(CLASSES).repeat(10), 2) + CENTRES[3]
    predbn.adapt(model, "auto")
    assert (model(one_class).argmax(1) == 3).all()
    assert (model(shifted).argmax(1) == torch.arange(CLASSES).repeat(10)).all()


@pytest.mark.parametrize("way", ["alone", "group", "streams"])
def test_a_given_up_explanation_gives_what_one_pass_gives(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Where `few` is given up, statistics are those of `auto` in one pass, but for the classes' part of 1/M."""
    monkeypatch.setattr(mixed_classes, "_MIN_RATIO", 0.0)
    x = draw(torch.full((100,), 3), 1)
    model.requires_grad_(False)
    predbn.adapt(model, "auto(passes=1)", robust=False)
    one_pass = model(x)
    predbn.adapt(model, "auto", robust=False, **({"group": 100} if way == "group" else {}))
    if way == "streams":
        with predbn.streams(model, ["camera"] * 100 + ["another"] * 50):
            found = model(torch.cat([x, draw(torch.full((50,), 5), 4)]))[:100]
    else:
        found = model(x)
    torch.testing.assert_close(found, one_pass, rtol=0.02, atol=0.06)
    monkeypatch.setattr(mixed_classes, "_MIN_RATIO", torch.inf)
    assert (model(x).argmax(1) == 3).all()
    assert not (one_pass.argmax(1) == 3).all()


def test_rows_that_are_not_finite_are_counted_once(model: nn.Module) -> None:
    x = draw(torch.arange(CLASSES).repeat(10), 2)
    x[7] = torch.nan
    predbn.adapt(model, "auto")
    with pytest.warns(UserWarning, match="not finite"):
        model(x)
    assert model[0]._predbn.bad_rows == 1
