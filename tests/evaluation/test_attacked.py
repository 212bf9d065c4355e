"""Attacked batches: what is predicted, what is scored, what is remembered, and what is refused."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import predbn
from predbn.data import Images, sample
from predbn.evaluation import EvaluationError, InProcess, Plan, Results, evaluate
from predbn.evaluation.splits import positions
from predbn.models import Classifier, ModelInfo, Preprocessing
from predbn.shifts import ATTACKS, orders

from . import tiny

DATA, VALIDATION = sample("test").take(60), sample("validation").take(200)
STEPS = {"targeted": 4, "everyone": 3}
ORDERS = ("attacked:targeted", "attacked:everyone")
STATELESS = ("train", "batch", "auto", "batch[robust=True, layers=last]")
WITH_STATE = ("ema", "auto_stream")
PLAN = Plan(
    models="t",
    strategies=(*STATELESS, *WITH_STATE),
    shifts="clean",
    orders=("shuffled", *ORDERS),
    batch_sizes=(4, 20),  # batches of four are predicted many at once
    images=33,  # the last batch of 4 is a single image, that of 20 has 13
)


@pytest.fixture(autouse=True, scope="module")
def _few_steps():
    with pytest.MonkeyPatch.context() as patch:
        for kind, steps in STEPS.items():
            patch.setitem(ATTACKS, kind, replace(ATTACKS[kind], steps=steps))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    evaluate(PLAN, folder, data=DATA, validation=VALIDATION, models={"t": tiny.classifier(0)})
    return folder


def plan(**changes):
    return replace(PLAN, **{"strategies": ("train", "batch"), "batch_sizes": 10, "images": None, **changes})


def measured(results, metric, **selection):
    (value,) = results.filter(metric=metric, **selection).frame["value"]
    return value


class Pixels(nn.Module):
    """The network of `tiny.classifier` for pixels as floats."""

    def __init__(self):
        super().__init__()
        self.network = tiny.network(0)

    def forward(self, pixels):
        return self.network((pixels - 120) / 60)


def naive_attack(model, images, labels, kind):
    """Slow and obvious: every attempt is predicted by a copy of the model, which is then thrown away."""
    share, reach = {"targeted": (0.2, 100 / 255), "everyone": (0.1, 4.0)}[kind]
    mine = max(1, round(share * len(images)))
    pixels = images.float()
    pixels[-mine:] = 127.5
    best, lowest = pixels, float("inf")
    for step in range(STEPS[kind] + 1):
        pixels = pixels.detach().requires_grad_(True)
        logits = copy.deepcopy(model)(pixels)
        if kind == "targeted":
            loss = F.cross_entropy(logits[:1], (labels[:1] + 1) % 10)
        else:
            loss = -F.cross_entropy(logits, labels, reduction="none")[:-mine].clamp(max=5).mean()
        if loss.item() < lowest:
            best, lowest = pixels.detach(), loss.item()
        if step < STEPS[kind]:
            (gradient,) = torch.autograd.grad(loss, pixels)
            gradient[:-mine] = 0
            pixels = (pixels - 255 * reach / STEPS[kind] * gradient.sign()).clamp(0, 255)
    return best, mine


def reference(strategy, size, kind, **options):
    """Accuracy, Brier score and success of the stream, batch by batch."""
    model = Pixels().eval()
    if strategy.startswith("auto"):
        predbn.calibrate(model, [VALIDATION.images[orders.shuffled(len(VALIDATION), seed=0)].float()])
    predbn.adapt(model, strategy, **options)
    visited = positions("shuffled", DATA.labels, 0, PLAN.images)
    correct, brier, success = [], [], []
    for images, labels in zip(DATA.images[visited].split(size), DATA.labels[visited].split(size), strict=True):
        pixels, mine = naive_attack(model, images, labels, kind) if len(images) > 1 else (images.float(), 0)
        with torch.no_grad():
            p = model(pixels).softmax(1)
        if mine:
            success.append(p[0].argmax() == (labels[0] + 1) % 10)
        p, labels = p[: len(p) - mine], labels[: len(p) - mine]
        correct.append(p.argmax(1) == labels)
        brier.append((p - F.one_hot(labels, 10)).square().sum(1))
    means = [torch.cat(correct).double().mean(), torch.cat(brier).mean(), torch.stack(success).double().mean()]
    return dict(zip(("accuracy", "brier", "success"), map(float, means), strict=True))


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize(("setting", "size"), [*((each, 20) for each in PLAN.strategies), ("batch", 4), ("ema", 4)])
def test_metrics_are_those_of_a_slow_and_obvious_attack(run, setting, size, kind):
    setting = next(each for each in PLAN.strategies if each.startswith(setting))
    options = {"robust": True, "layers": "last"} if "[" in setting else {}
    expected = reference(setting.partition("[")[0], size, kind, **options)
    results = Results.load(run).filter(strategy=setting, batch_size=size, order=f"attacked:{kind}")
    if kind == "everyone":
        assert "success" not in set(results.frame["metric"])
        del expected["success"]
    for metric, value in expected.items():
        # The sign of a gradient close to 0 depends on the last digit, which changes single pixels.
        assert measured(results, metric) == pytest.approx(value, abs=1e-6 if metric != "brier" else 2e-4)


def test_the_attackers_images_are_not_scored(run):
    counts = Results.load(run).reliability.groupby(["order", "strategy", "batch_size"])["count"].sum()
    assert set(counts["shuffled"]) == {33}
    assert set(counts["attacked:everyone"].xs(20, level="batch_size")) == {18 + 12}
    assert set(counts["attacked:targeted"].xs(20, level="batch_size")) == {16 + 10}
    assert set(counts["attacked:everyone"].xs(4, level="batch_size")) == {8 * 3 + 1}


def test_the_run_card_says_what_was_attacked(run, tmp_path):
    assert "attacker" in Results.load(run).card["batches"]["attack"]
    without = evaluate(plan(orders="shuffled"), tmp_path, data=DATA, models={"t": tiny.classifier(0)})
    assert "attack" not in without.card["batches"]


class MeanOfPixels(nn.Module):
    """Predicts class 1 if the mean of an image is above that of the layer, and class 0 below."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3, affine=False)
        self.norm.running_mean.fill_(125 / 255)

    def forward(self, x):
        z = self.norm(x.mean((2, 3), keepdim=True)).sum((1, 2, 3))
        return torch.stack([-z, z], 1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_an_attack_whose_effect_is_known(tmp_path, device):
    """Images of 120 (class 0) and 130 (class 1), 125 on average: a tenth of white images lifts the mean to 138, and a
    fifth of images of 27.5 or 227.5, as far as the targeted attack reaches, moves it to 106 or 146, each beyond all
    others."""
    labels = torch.tensor([0, 1, 1] * 20)
    images = (120 + 10 * labels).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
    data = Images(images, labels, torch.arange(60), ("0", "1"), "two levels")
    info = ModelInfo("mean", 2, Preprocessing((4, 4), (0.0,) * 3, (255.0,) * 3))
    models = {"mean": Classifier(MeanOfPixels(), info).eval()}
    given = {"data": data, "models": models, "engine": InProcess(device)}
    results = evaluate(plan(models="mean", seeds=3), tmp_path, **given)
    assert measured(results, "accuracy", strategy="batch", order="shuffled") == 1
    visited = labels[positions("shuffled", labels, 3)].view(6, 10)
    # Most images have class 1, so that raising the mean does the most harm: all others are then of class 0.
    class_0 = (visited[:, :9] == 0).double().mean().item()
    assert measured(results, "accuracy", strategy="batch", order="attacked:everyone") == pytest.approx(class_0)
    assert measured(results, "success", strategy="batch", order="attacked:targeted") == 1
    for order in ORDERS:
        assert measured(results, "accuracy", strategy="train", order=order) == 1
    assert measured(results, "success", strategy="train", order="attacked:targeted") == 0


def test_a_temperature_changes_confidence_and_not_the_attack(tmp_path):
    methods = ("vanilla", "temperature(value=3)")
    results = evaluate(plan(methods=methods, orders=ORDERS), tmp_path, data=DATA, models={"t": tiny.classifier(0)})
    for order in ORDERS:
        plain, scaled = (results.filter(strategy="batch", order=order, method=method) for method in methods)
        assert measured(plain, "accuracy") == measured(scaled, "accuracy")
        assert measured(plain, "nll") != measured(scaled, "nll")


def test_population_has_its_statistics_from_the_stream_without_the_attack(tmp_path):
    strategies = ("train", "population")
    results = evaluate(
        plan(strategies=strategies, orders=ORDERS, images=40), tmp_path, data=DATA, models={"t": tiny.classifier(0)}
    )
    visited = positions("shuffled", DATA.labels, 0, 40)
    with torch.no_grad(), predbn.adapted(tiny.classifier(0), "population", loader=[DATA.images[visited]]) as model:
        correct = (model(DATA.images[visited]).argmax(1) == DATA.labels[visited]).view(4, 10)[:, :9]
    found = measured(results, "accuracy", strategy="population(exact=True)", order="attacked:everyone")
    assert found == pytest.approx(correct.double().mean().item())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"orders": "attacked:all"}, "names no attack that is known: use attacked:targeted or attacked:everyone"),
        ({"orders": "attacked"}, "names no attack that is known"),
        ({"precision": "fp16"}, "precision fp16 has none: use fp32"),
        ({"precision": "bf16"}, "precision bf16 has none: use fp32"),
        ({"methods": "ensemble"}, "leave out the method ensemble"),
        ({"batch_sizes": (100, 1)}, "needs two images in a batch, one the attacker's: use 2 or more"),
        ({"images": 1}, "needs two images in a batch"),
        ({"hits": True}, "leave out hits"),
        ({"data": "criteo", "severities": 5}, "rows have no order 'attacked:everyone'"),
    ],
)
def test_what_cannot_be_attacked_is_said_in_one_sentence(changes, sentence):
    with pytest.raises(EvaluationError, match=sentence) as error:
        plan(**{"orders": "attacked:everyone", **changes})
    assert "\n" not in str(error.value)
