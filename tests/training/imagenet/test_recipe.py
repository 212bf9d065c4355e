from __future__ import annotations

import pytest

from predbn.training import ImageNetRecipe, TrainingError


def test_the_schedule_is_the_papers():
    recipe = ImageNetRecipe(learning_rate=0.4)
    assert (recipe.batch_size, recipe.epochs, recipe.eps) == (512, 90, 1e-5)
    expected = {0: 0, 1: 0.08, 2.5: 0.2, 5: 0.4, 29.99: 0.4, 30: 0.04, 59.9: 0.04, 60: 0.004, 80: 4e-4, 89.9: 4e-4}
    for epoch, rate in expected.items():
        assert recipe.learning_rate_at(epoch) == pytest.approx(rate)


def test_a_shorter_training_has_the_drops_earlier():
    recipe = ImageNetRecipe(learning_rate=1.0, epochs=9, warm_up=0)
    assert [recipe.learning_rate_at(epoch) for epoch in range(9)] == pytest.approx(
        [1] * 3 + [0.1] * 3 + [0.01] * 2 + [0.001]
    )


def test_the_margin_of_the_validation_images_is_the_same_at_every_size():
    assert (ImageNetRecipe().preprocessing.size, ImageNetRecipe().preprocessing.resize) == ((224, 224), 256)
    assert ImageNetRecipe(size=112).preprocessing.resize == 128


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"momentum": 0.0}, "momentum is 0.0, but Nesterov's"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"warm_up": -1}, "warm_up is -1"),
        ({"batch_size": 0}, "batch_size is 0, but it must be at least 1"),
    ],
)
def test_invalid_numbers(change, says):
    with pytest.raises(TrainingError, match=says):
        ImageNetRecipe(**change)
