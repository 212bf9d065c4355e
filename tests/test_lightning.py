"""The callbacks, in trainers of the real Lightning."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import predbn

L = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint, StochasticWeightAveraging  # noqa: E402

from predbn.lightning import AdaptForPrediction, RecomputeStatistics  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*")  # Lightning's advice

DRAWN = torch.Generator().manual_seed(0)
IMAGES, LABELS = torch.randn(40, 3, 6, 6, generator=DRAWN) * 2 + 1, torch.randint(2, (40,), generator=DRAWN)


class Network(L.LightningModule):
    """Keeps what its first batch norm layer has at every validation, and its predictions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
        self.validated: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.tested: list[torch.Tensor] = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        images, labels = batch[0] if isinstance(batch[0], list) else batch
        return nn.functional.cross_entropy(self(images), labels)

    def validation_step(self, batch, index):
        assert not self.net[1].training
        self(batch[0])
        if index == 0 and not self.trainer.sanity_checking:
            self.validated.append((self.net[1].running_mean.clone(), true_mean(self)))

    def test_step(self, batch, index):
        self.tested.append(self(batch[0]))
        if getattr(self, "fails", False):
            raise ValueError("a bug of the user")

    def predict_step(self, batch, index):
        return self(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.5)


class Bare(Network):
    """Its steps call the network inside."""

    forward = L.LightningModule.forward

    def __call__(self, x):
        return self.net(x)


@torch.no_grad()
def true_mean(model, images=IMAGES):
    return model.net[0](images).mean((0, 2, 3))


def loader(**options):
    return DataLoader(TensorDataset(IMAGES, LABELS), batch_size=10, **options)


def trainer(*callbacks, kind=L, epochs=2, **options):
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    options = {"enable_checkpointing": False, **quiet, **options}
    return kind.Trainer(accelerator="cpu", max_epochs=epochs, callbacks=list(callbacks), **options)


def fit(model, *callbacks, data=None, **options):
    trainer(*callbacks, **options).fit(model, loader(shuffle=True) if data is None else data, loader())
    return model


def averaging():
    return EMAWeightAveraging(decay=0.9, use_buffers=False)


def test_statistics_belong_to_the_averaged_weights():
    stale = fit(Network(), averaging())
    assert (stale.validated[-1][0] - stale.validated[-1][1]).abs().max() > 0.01
    model = fit(Network(), averaging(), RecomputeStatistics())
    assert len(model.validated) == 2
    for stored, true in [*model.validated, (model.net[1].running_mean, true_mean(model))]:
        torch.testing.assert_close(stored, true, atol=1e-5, rtol=1e-5)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, stale.get_parameter(name))


def test_a_checkpoint_holds_them(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, filename="last")
    fit(Network(), averaging(), RecomputeStatistics(), checkpoint, enable_checkpointing=True)
    model = Network()
    model.load_state_dict(torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"])
    torch.testing.assert_close(model.net[1].running_mean, true_mean(model), atol=1e-5, rtol=1e-5)


def test_stochastic_weight_averaging():
    model = fit(Network(), StochasticWeightAveraging(0.1, swa_epoch_start=1), RecomputeStatistics(), epochs=3)
    torch.testing.assert_close(model.net[1].running_mean, true_mean(model), atol=1e-5, rtol=1e-5)


class Exchanged(Network):
    """Exchanges its weights for the validation itself, as with a schedule-free optimizer."""

    def on_validation_epoch_start(self):
        self.net[0].bias.data += 1

    def on_validation_epoch_end(self):
        self.net[0].bias.data -= 1


def test_weights_that_the_module_exchanges():
    for stored, true in fit(Exchanged(), RecomputeStatistics()).validated:
        torch.testing.assert_close(stored, true, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_training_goes_on_as_without_it(options):
    """Validated twice an epoch, which must not disturb the iterator of the epoch."""
    models = []
    for callbacks in ((), (RecomputeStatistics(max_batches=2),)):
        torch.manual_seed(3)
        models.append(
            fit(Network(), *callbacks, data=loader(shuffle=True, **options), val_check_interval=0.5, epochs=1)
        )
    assert len(models[0].validated) == 2
    for name, parameter in models[0].named_parameters():
        assert torch.equal(parameter, models[1].get_parameter(name))


def test_another_loader_and_network():
    model = fit(Bare(), RecomputeStatistics([IMAGES[:10], IMAGES[10:30], IMAGES], module="net", max_batches=2))
    torch.testing.assert_close(model.net[1].running_mean, true_mean(model, IMAGES[:30]), atol=1e-5, rtol=1e-5)
    model = fit(Bare(), RecomputeStatistics(forward=lambda model, batch: model.net(batch[0] + 1)))
    torch.testing.assert_close(model.net[1].running_mean, true_mean(model, IMAGES + 1), atol=1e-5, rtol=1e-5)


def test_in_mixed_precision():
    model, dtypes = Network(), set()
    model.net[0].register_forward_hook(lambda *call: dtypes.add(call[2].dtype))
    fit(model, RecomputeStatistics(), precision="bf16-mixed")
    assert dtypes == {torch.bfloat16}


def test_wrong_uses():
    with pytest.raises(predbn.AdaptationError, match="must come after EMAWeightAveraging"):
        fit(Network(), RecomputeStatistics(), averaging())
    with pytest.raises(predbn.AdaptationError, match=r"no single training dataloader; give RecomputeStatistics\("):
        fit(Network(), RecomputeStatistics(), data=[loader(), loader()])
    with pytest.raises(predbn.AdaptationError, match="Bare defines no forward; name the network in it"):
        trainer(AdaptForPrediction()).test(Bare(), loader(), verbose=False)
    with pytest.raises(predbn.AdaptationError, match="no module='network' in Network"):
        trainer(AdaptForPrediction(module="network")).test(Network(), loader(), verbose=False)


@pytest.mark.parametrize(("make", "options"), [(Network, {}), (Bare, {"module": "net"})])
@torch.no_grad()
def test_adapted_while_it_predicts(make, options):
    model = make().eval()
    plain, expected = model(IMAGES), predbn.adapt(make().eval().net, "prior", N=5)(IMAGES[:10])
    trainer(AdaptForPrediction("prior", N=5, **options)).test(model, loader(), verbose=False)
    assert torch.equal(model.tested[0], expected)
    assert torch.equal(model(IMAGES), plain)


@torch.no_grad()
def test_a_calibration_is_used_and_kept():
    model = predbn.calibrate(Network().eval(), [IMAGES])
    trainer(AdaptForPrediction("auto")).test(model, loader(), verbose=False)
    predbn.adapt(model, "auto")
    assert torch.equal(model.tested[0], model(IMAGES[:10]))


@torch.no_grad()
def test_restored_after_an_error():
    model = Network().eval()
    model.fails, plain = True, model(IMAGES)
    with pytest.raises(ValueError, match="a bug of the user"):
        trainer(AdaptForPrediction()).test(model, loader(), verbose=False)
    assert torch.equal(model(IMAGES), plain)


def test_not_adapted_while_it_fits():
    model, plain = (fit(Network(), *callbacks) for callbacks in ((AdaptForPrediction(),), ()))
    for (mean, _), (expected, _) in zip(model.validated, plain.validated, strict=True):
        assert torch.equal(mean, expected)
    predictions = trainer(AdaptForPrediction()).predict(model, loader())
    with torch.no_grad():
        assert torch.equal(predictions[0], predbn.adapt(model.eval())(IMAGES[:10]))


def test_with_the_trainer_of_the_other_package():
    kind = pytest.importorskip("pytorch_lightning")
    names = [name for name in vars(Network) if name.endswith(("_step", "forward", "optimizers"))]
    network = Network()
    model = type("Other", (kind.LightningModule,), {name: vars(Network)[name] for name in names})()
    model.net, model.validated = network.net, []
    fit(model, RecomputeStatistics(), kind=kind)
    torch.testing.assert_close(model.net[1].running_mean, true_mean(model), atol=1e-5, rtol=1e-5)
