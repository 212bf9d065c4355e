"""I5 and I6: experiments on data that is not at hand here, with the command for whoever has it."""

from __future__ import annotations

from collections.abc import Sequence

from predbn.common import NotMeasured

from ..claims import Claim, Measurement
from ..experiment import Experiment
from ..runs import Runs

__all__ = ["EXPERIMENTS"]


def _experiment(id: str, figure: str, title: str, statement: str, command: str) -> Experiment:
    def measure(runs: Runs) -> Sequence[Measurement]:
        raise NotMeasured(f"{title} is not at hand; with it: predbn evaluate {command}")

    return Experiment(id, figure, title, (), (Claim(f"{id}.1", figure, statement, "", measure),))


EXPERIMENTS = (
    _experiment(
        "I5",
        "table 1",
        "ImageNet-v2",
        "Under natural shift, prediction-time BN of ResNet-50 lowers accuracy from 62.02 to 58.32 % and ECE from 0.085 "
        "to 0.065.",
        "--data imagenet-v2 --root imagenetv2-matched-frequency-format-val --model FILE --shift clean --batch-size 100 "
        "with FILE being file:WEIGHTS#resnet50-v1",
    ),
    _experiment(
        "I6",
        "table 2",
        "ImageNet-A",
        "For DenseNet-121 prediction-time BN is better than train BN in accuracy, Brier score and ECE.",
        "--data imagenet-a --root imagenet-a --model timm:densenet121 --shift clean --batch-size 100",
    ),
)
