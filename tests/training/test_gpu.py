"""On a GPU, where a step is a CUDA graph on a stream of its own: still the same bits."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from predbn.data import Images, criteo, prepare_synthetic
from predbn.models import NORMALISATIONS, CriteoSizes
from predbn.training import Cifar10Data, Cifar10Recipe, CriteoData, CriteoRecipe, find_cifar10_recipe
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.criteo import CriteoTrainer
from predbn.training.loop import TrainingRun, train_side_by_side

from .tiny import Interrupted, interrupt_after, same_weights

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def gpu_data() -> Cifar10Data:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2048, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (2048,), generator=generator)
    train = Images(images, labels, torch.arange(2048), tuple("0123456789"), "random")
    return Cifar10Data(train, train.take(500), train, CUDA)


SGD = [replace(find_cifar10_recipe("cosine", norm), epochs=4, learning_rate=0.01) for norm in ("batch", "fixup")]
ADAM = [Cifar10Recipe(norm=norm, learning_rate=1e-3, weight_decay=1e-4, epochs=4) for norm in NORMALISATIONS]


@pytest.mark.parametrize("recipe", [*ADAM, *SGD], ids=lambda recipe: f"{recipe.norm}-{'sgd' if recipe.sgd else 'adam'}")
def test_alone_side_by_side_and_resumed(recipe, gpu_data, tmp_path):

    def make_run(seed, path=None):
        return TrainingRun(Cifar10Trainer(recipe, seed, gpu_data), path)

    together, alone = [make_run(seed) for seed in range(3)], make_run(1)
    train_side_by_side(together)
    train_side_by_side([alone])
    assert same_weights(together[1].trainer, alone.trainer)
    metrics = alone.trainer.metrics
    assert together[1].trainer.metrics["validation_accuracy"] == metrics["validation_accuracy"]
    assert together[1].trainer.metrics["loss"] == metrics["loss"] < 2.6
    with pytest.raises(Interrupted):
        train_side_by_side([make_run(1, tmp_path / "1")], checkpoint_steps=3, on_step=interrupt_after(10))
    resumed = make_run(1, tmp_path / "1")
    train_side_by_side([resumed], resume=True)
    assert same_weights(resumed.trainer, alone.trainer)


def test_the_captured_step_of_sgd_trains_like_the_plain_one(gpu_data):
    recipe = replace(SGD[1], batch_size=128, epochs=2)
    graphed, plain = Cifar10Trainer(recipe, 0, gpu_data), Cifar10Trainer(recipe, 0, gpu_data)
    plain.run_step = lambda step: step()
    plain.stream = None
    train_side_by_side([TrainingRun(graphed)])
    train_side_by_side([TrainingRun(plain)])
    assert graphed.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=1e-3)
    assert graphed.metrics["learning_rate"] == plain.metrics["learning_rate"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_captured_step_of_criteo_trains_like_the_plain_one(precision, tmp_path):
    rows: Path = tmp_path / "rows"
    prepare_synthetic(8_000, rows)
    data = CriteoData(*(criteo(part, rows) for part in ("train", "validation", "test")))
    sizes = CriteoSizes(widths=(32, 16)).limited(buckets=100, dimensions=4)
    recipe = CriteoRecipe(batch_size=256, epochs=1, learning_rate=1e-2, precision=precision, sizes=sizes)
    graphed = CriteoTrainer(recipe, 0, replace(data, train=data.train.to(CUDA)), CUDA)
    plain = CriteoTrainer(recipe, 0, data, CUDA)
    plain.run_step = lambda step: step()
    train_side_by_side([TrainingRun(graphed)])
    train_side_by_side([TrainingRun(plain)])
    assert graphed.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=1e-3)
    assert graphed.metrics["validation_loss"] == pytest.approx(plain.metrics["validation_loss"], rel=1e-2)
