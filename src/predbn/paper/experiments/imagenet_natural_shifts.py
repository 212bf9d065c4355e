"""I5 and I6, tables 1 and 2: the natural shifts ImageNet-v2 and ImageNet-A.

We do not have these data sets, so the claims are not measured; the reason names the command for those who have them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..claims import Claim
from ..experiment import Experiment
from ..measurements import unmeasured


def _not_measured(id: str, figure: str, data_set: str, statements: Sequence[str], options: str) -> Experiment:
    measure = unmeasured(f"we do not have {data_set}; with it: predbn evaluate {options}")
    claims = (Claim(f"{id}.{number}", figure, text, "", measure) for number, text in enumerate(statements, 1))
    return Experiment(id, figure, data_set, (), tuple(claims))


IMAGENET_V2 = _not_measured(
    "I5",
    "table 1",
    "ImageNet-v2",
    (
        "Under natural shift, prediction-time BN of ResNet-50 worsens accuracy (62.02 to 58.32 %) and Brier score "
        "(0.514 to 0.547) and improves ECE (0.085 to 0.065); with a temperature likewise (62.02 to 58.32 %, 0.513 to "
        "0.546, 0.080 to 0.060).",
        "Under natural shift, prediction-time BN of an ensemble worsens all three: accuracy (65.50 to 62.08 %), Brier "
        "score (0.464 to 0.502) and ECE (0.020 to 0.026).",
    ),
    "--data imagenet-v2 --root imagenetv2-matched-frequency-format-val --model FILE --shift clean --batch-size 100 "
    "with FILE being file:WEIGHTS#resnet50-v1",
)
IMAGENET_A = _not_measured(
    "I6",
    "table 2",
    "ImageNet-A",
    (
        "For DenseNet-121 prediction-time BN is better than train BN in accuracy (1.80 to 1.87 %), Brier score (1.252 "
        "to 1.148) and ECE (0.4070 to 0.2895).",
    ),
    "--data imagenet-a --root imagenet-a --model timm:densenet121 --shift clean --batch-size 100",
)
