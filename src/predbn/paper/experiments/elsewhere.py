"""I1 to I7: the experiments on ImageNet, which have a place here and no results yet."""

from __future__ import annotations

from collections.abc import Sequence

from ..claims import Claim, Measurement
from ..errors import NotMeasured
from ..experiment import Experiment
from ..runs import Runs

__all__ = ["EXPERIMENTS"]


def _experiment(id: str, figure: str, title: str, data: str, statement: str) -> Experiment:
    def measure(runs: Runs) -> Sequence[Measurement]:
        raise NotMeasured(f"there are no results on {data}")

    return Experiment(id, figure, title, (), (Claim(f"{id}.1", figure, statement, "", measure),))


EXPERIMENTS = (
    _experiment(
        "I1",
        "figures 4b and A3",
        "methods with train and prediction-time BN on ImageNet-C",
        "ImageNet-C",
        "ResNet-50 with prediction-time BN has an mCE of 60.28 %; ensembles with it gain in accuracy and Brier score "
        "and lose in ECE.",
    ),
    _experiment(
        "I2",
        "figure A7",
        "prediction batch sizes on ImageNet-C",
        "ImageNet-C",
        "Nothing much is gained with batches of more than 100 to 250 images.",
    ),
    _experiment(
        "I3",
        "figures 6 (bottom) and A9",
        "frozen statistics, and several shifts at once, on ImageNet-C",
        "ImageNet-C",
        "Freezing costs little, and mixtures of shifts leave prediction-time BN ahead of train BN, as on CIFAR-10-C.",
    ),
    _experiment(
        "I4",
        "figure 10",
        "confidence and accuracy by confidence on ImageNet-C",
        "ImageNet-C",
        "Prediction-time BN is less confident, and more accurate at the same confidence.",
    ),
    _experiment(
        "I5",
        "table 1",
        "ImageNet-v2",
        "ImageNet-v2",
        "Under natural shift, prediction-time BN of ResNet-50 lowers accuracy from 62.02 to 58.32 % and ECE from 0.085 "
        "to 0.065.",
    ),
    _experiment(
        "I6",
        "table 2",
        "ImageNet-A",
        "ImageNet-A",
        "For DenseNet-121 prediction-time BN is better than train BN in accuracy, Brier score and ECE.",
    ),
    _experiment(
        "I7",
        "figure 7",
        "a network with massive pre-training on ImageNet-C",
        "ImageNet-C with a Noisy Student network",
        "For EfficientNet trained as Noisy Student prediction-time BN is worse than train BN.",
    ),
)
