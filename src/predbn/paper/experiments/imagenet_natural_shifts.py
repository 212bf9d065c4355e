"""I5 and I6, tables 1 and 2: the natural shifts ImageNet-v2 and ImageNet-A.

We do not have these data sets, so the claims are not measured; the reason names the command for those who have them.
"""

from __future__ import annotations

from ..claims import Claim
from ..experiment import Experiment
from ..measurements import unmeasured


def _not_measured(id: str, figure: str, data_set: str, statement: str, options: str) -> Experiment:
    measure = unmeasured(f"we do not have {data_set}; with it: predbn evaluate {options}")
    return Experiment(id, figure, data_set, (), (Claim(f"{id}.1", figure, statement, "", measure),))


IMAGENET_V2 = _not_measured(
    "I5",
    "table 1",
    "ImageNet-v2",
    "Under natural shift, prediction-time BN of ResNet-50 lowers accuracy from 62.02 to 58.32 % and ECE from 0.085 "
    "to 0.065.",
    "--data imagenet-v2 --root imagenetv2-matched-frequency-format-val --model FILE --shift clean --batch-size 100 "
    "with FILE being file:WEIGHTS#resnet50-v1",
)
IMAGENET_A = _not_measured(
    "I6",
    "table 2",
    "ImageNet-A",
    "For DenseNet-121 prediction-time BN is better than train BN in accuracy, Brier score and ECE.",
    "--data imagenet-a --root imagenet-a --model timm:densenet121 --shift clean --batch-size 100",
)
