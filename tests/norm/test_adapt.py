"""Adapting changes what `.eval()` means and nothing else; restoring undoes it bit for bit."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn

import predbn
from predbn.norm import PreparedAdaptation

from .models import images, net

STRATEGIES = ["train", "batch", "auto", "auto_stream", "prior", "ema", "frozen"]


def fingerprint(model: nn.Module) -> dict:
    """Everything a user could look at."""

    def tensors(named: dict) -> list:
        return [
            (k, None if t is None else (t.data_ptr(), t._version, t.detach().numpy().tobytes()))
            for k, t in named.items()
        ]

    return {
        name: (
            *(type(m), m.training, sorted(m.__dict__), tensors(m._parameters), tensors(m._buffers)),
            *(list(m._forward_hooks.items()), list(m._forward_pre_hooks.items())),
        )
        for name, m in model.named_modules()
    }


def use_in_every_mode(model: nn.Module) -> None:
    x = images()
    model(x)
    model(x).sum().backward()
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        model(x)
    with torch.inference_mode():
        model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_restore_gives_back_the_very_same_model(strategy):
    model = net()
    model.bn1.register_forward_hook(lambda *_: None)
    x = images()
    before, predicted = fingerprint(model), model(x)
    assert predbn.adapt(model, strategy) is model
    use_in_every_mode(model)
    assert predbn.restore(model) is model
    assert fingerprint(model) == before
    assert torch.equal(model(x), predicted)


@pytest.mark.filterwarnings("ignore:an adapted model was called in training mode")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_is_that_of_the_unadapted_model(strategy):
    model, twin = net(), net()
    predbn.adapt(model, strategy)
    for m in (model, twin):
        m.train()
        torch.manual_seed(1)
        optimiser = torch.optim.SGD(m.parameters(), lr=0.1)
        for seed in range(3):
            optimiser.zero_grad()
            m(images(seed=seed)).square().mean().backward()
            optimiser.step()
        m.eval()
    predbn.restore(model)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))


def test_the_model_is_restored_after_an_exception():
    model = net()
    before = fingerprint(model)
    with pytest.raises(RuntimeError, match="on purpose"), predbn.adapted(model, "ema") as same:
        assert same is model
        use_in_every_mode(model)
        raise RuntimeError("on purpose")
    assert fingerprint(model) == before


def test_a_failed_adaptation_changes_nothing():
    model = predbn.adapt(net(), "ema", momentum=0.5)
    x = images()
    model(x)
    with pytest.raises(predbn.AdaptationError):
        predbn.adapt(model, "batch", layers="nowhere*")
    with pytest.raises(ZeroDivisionError):
        predbn.adapt(model, "population", loader=(1 / 0 for _ in range(3)))
    assert {row.strategy for row in predbn.describe(model)} == {"ema(momentum=0.5, start='source')"}
    assert "mean" in predbn.state_dict(model)["streams"]["default"]["bn1"]


def test_after_a_block_the_earlier_adaptation_is_back():
    model = predbn.adapt(net(), "frozen")
    x = images()
    with torch.no_grad():
        expected = model(x)
        with predbn.adapted(model, "batch", layers="last"):
            assert {row.strategy for row in predbn.describe(model)} == {"train", "batch"}
            model(images(shift=3.0))
        assert torch.equal(model(x), expected)


@torch.no_grad()
def test_prepared_adaptations_take_turns_and_keep_their_own_state():
    model, x = predbn.adapt(net(), "prior"), [images(seed=seed, shift=float(seed)) for seed in range(3)]
    before = model(x[0])
    alone = {strategy: predbn.adapt(net(), strategy, layers="bn[12]") for strategy in ("ema", "frozen")}
    calls: list[tuple[str, predbn.Statistics]] = []
    prepared = {
        strategy: PreparedAdaptation(
            model, strategy, layers="bn[12]", observer=lambda o, statistics: calls.append((o.layer, statistics))
        )
        for strategy in alone
    }
    for batch in x:
        for strategy, other in alone.items():
            calls.clear()
            with prepared[strategy].active():
                torch.testing.assert_close(model(batch), other(batch))
            assert [layer for layer, _ in calls] == ["bn1", "bn2", "bn3"]
            assert calls[2][1].mean is model.bn3.running_mean
    assert torch.equal(model(x[0]), before)


def test_adapting_twice_replaces_the_strategy():
    model = net()
    x = images()
    expected = predbn.adapt(net(), "batch", layers="last")(x)
    predbn.adapt(model, "prior", N=3)
    predbn.adapt(model, "batch", layers="last")
    assert torch.equal(model(x), expected)
    predbn.restore(model)
    assert torch.equal(model(x), net()(x))


def test_eval_and_train_switch_without_forgetting():
    model = predbn.adapt(net())
    x = images()
    expected = model(x)
    model.train()
    model.eval()
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_copies_and_pickles_are_adapted_and_independent(strategy):
    model = predbn.adapt(net(), strategy)
    x, later = images(), images(seed=5, shift=1.0)
    with torch.no_grad():
        model(x)
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)]
        expected = model(later)
        predbn.restore(model)
        for other in others:
            assert torch.equal(other(later), expected)
            assert torch.equal(predbn.restore(other)(x), model(x))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_state_dict_is_that_of_the_unadapted_model(strategy):
    model = predbn.adapt(net(), strategy)
    model(images())
    plain = net()
    assert list(model.state_dict()) == list(plain.state_dict())
    fresh = type(plain)().eval()
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(images()), plain(images()))
    model.load_state_dict(plain.state_dict(), strict=True)


def test_moving_a_model_moves_what_it_has_learned_and_keeps_its_precision():
    model = predbn.adapt(net(), "frozen")
    x = images()
    model(x)
    model.to(torch.bfloat16)
    state = predbn.state_dict(model)["streams"]["default"]["bn1"]
    assert state["mean"].dtype == torch.float32
    assert model(x.bfloat16()).dtype == torch.bfloat16
    model.to("meta")
    assert predbn.state_dict(model)["streams"]["default"]["bn1"]["mean"].device.type == "meta"


def test_state_from_inference_mode_serves_gradients():
    model = predbn.adapt(net(), "ema")
    with torch.inference_mode():
        model(images())
    x = images().requires_grad_()
    model(x).sum().backward()
    assert x.grad.isfinite().all()
    for value in predbn.state_dict(model)["streams"]["default"]["bn1"].values():
        assert not value.requires_grad


@pytest.mark.parametrize(
    ("layers", "chosen"),
    [
        ("all", ["bn1", "bn2", "bn3"]),
        ("first", ["bn1"]),
        ("last", ["bn3"]),
        ("bn[12]", ["bn1", "bn2"]),
        (["bn1", "*3"], ["bn1", "bn3"]),
        (lambda name, layer: isinstance(layer, nn.BatchNorm1d), ["bn3"]),
    ],
)
def test_choosing_layers(layers, chosen):
    model = predbn.adapt(net(), layers=layers)
    assert [row.name for row in predbn.describe(model) if row.strategy == "batch"] == chosen


def test_describe_shows_every_layer_and_the_distance():
    model = net()
    assert [row.distance for row in predbn.describe(model)] == [None] * 3
    predbn.adapt(model, eps=0.1)
    model(images())
    near = predbn.describe(model)
    model(images(shift=20.0))
    far = predbn.describe(model)
    assert far[0].distance > near[0].distance > 0
    assert [row.channels for row in far] == [8, 8, 8]
    assert [row.kind for row in far] == ["BatchNorm2d", "BatchNorm2d", "BatchNorm1d"]
    assert {row.eps for row in far} == {0.1}
    table = str(far).splitlines()
    assert len(table) == 7
    assert table[0].split() == ["layer", "kind", "channels", "strategy", "eps", "distance", "believed"]
    assert [line.split(":")[0] for line in table[5:]] == ["distance", "believed"]


def test_distance_is_the_normalised_wasserstein_distance():
    layer = nn.BatchNorm1d(1, eps=0.0).eval()
    layer.running_mean.fill_(1.0)
    layer.running_var.fill_(4.0)
    predbn.adapt(layer)
    layer(torch.tensor([[0.0], [8.0]]))  # mean 4, deviation 4
    assert predbn.describe(layer)[0].distance == pytest.approx(((3.0**2 + 2.0**2) / 4.0) ** 0.5)


def test_describe_shows_how_much_of_the_batch_is_believed():
    """The mean of 3 examples has moved, and 9 of the source are mixed in: a quarter."""
    layer = nn.BatchNorm1d(1, eps=0.0).eval()
    x = torch.tensor([[-1.5], [0.0], [1.5]]) * (2 / 3) ** 0.5 + 0.1  # mean 0.1, variance 1
    found = {}
    for strategy in ("train", "prior(N=9)", "batch"):
        predbn.adapt(layer, strategy)(x)
        found[strategy] = predbn.describe(layer)[0].believed
    assert found["batch"] == pytest.approx(1)
    assert found["prior(N=9)"] == pytest.approx(0.25)
    assert found["train"] is None, "it looks at no batch"


def test_repr_names_the_strategy():
    assert "strategy=prior(N=8)" in repr(predbn.adapt(net(), "prior", N=8))


def test_a_call_in_training_mode_warns_once_that_restore_will_not_undo_it():
    """The buffers change as without predbn; a second adaptation that is trained on purpose is not warned of again."""
    model = net()
    before = model.bn1.running_mean.clone()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            predbn.adapt(model)
            model.eval()(images())
            assert len(caught) == (0 if torch.equal(model.bn1.running_mean, before) else 1)
            model.train()(images())
            model(images())
            predbn.restore(model)
    assert not torch.equal(model.bn1.running_mean, before)
    assert len(caught) == 1
    assert "restore does not undo" in str(caught[0].message)


@pytest.mark.parametrize("tracks", [True, False])
def test_training_that_changes_no_statistics_is_not_warned_of(tracks):
    model = predbn.adapt(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=tracks))).train()
    model[1].train(not tracks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(images())
    assert not caught
