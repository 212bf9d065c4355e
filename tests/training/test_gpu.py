"""On a GPU, where a step is a graph on a stream of its own and the kernels are ours: still the same bits."""

from __future__ import annotations

import pytest
import torch

from predbn.models.normalisation import NORMALISATIONS
from predbn.training import Recipe, Run, TrainingSet, train_together

from .tiny import same_weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def pictures() -> TrainingSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2048, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (2048,), generator=generator)
    return TrainingSet(images, labels, images[:500], labels[:500]).to(torch.device("cuda"))


class Interrupted(Exception):
    pass


def interrupt(epochs):
    if epochs[0].epoch == 3:
        raise Interrupted


@pytest.mark.parametrize("norm", list(NORMALISATIONS))
def test_alone_among_others_and_resumed(norm, pictures, tmp_path):
    recipe = Recipe(norm=norm, learning_rate=1e-3, weight_decay=1e-4, epochs=4)
    together = train_together([Run(recipe, seed) for seed in range(3)], pictures)
    ((alone, epoch),) = train_together([Run(recipe, 1)], pictures)
    assert same_weights(together[1][0], alone)
    assert together[1][1].validation_accuracy == epoch.validation_accuracy
    assert together[1][1].loss == epoch.loss < 2.6
    with pytest.raises(Interrupted):
        train_together([Run(recipe, 1, tmp_path / "1")], pictures, checkpoint_every=2, on_epoch=interrupt)
    ((resumed, _),) = train_together([Run(recipe, 1, tmp_path / "1")], pictures, resume=True)
    assert same_weights(resumed, alone)
