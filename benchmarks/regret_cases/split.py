"""Which networks, shifts and natural sets a rule may be developed on, and which are kept for one look at the end.

Written down before the rule was looked for. `benchmarks/regret.py` runs the test half only with `--half test`; who
changes the rule after having seen its results needs new networks and new shifts. The shifts' halves are in `shifts.py`.
Kinds that are only in the test half: VGG, DenseNet, MLP on pictures, spectrograms as pictures.
"""

from __future__ import annotations

from typing import Literal

Half = Literal["development", "test"]

DEVELOPMENT = (
    *("digits/cnn", "digits/pooled", "mnist/cnn", "fashion/residual"),
    *("leaves/mlp", "segments/deep", "exercises/conv", "instruments/conv"),
    *("cifar10/resnet20-black-4", "cifar10/resnet20-black-2-a", "cifar10/resnet20-reflect-a", "cifar10/mobilenet-a"),
    *("natural/resnet50", "natural/espnet-q5"),
)

TEST = (
    *("digits/wide", "digits/mlp", "mnist/strided", "mnist/mlp", "fashion/cnn", "fashion/pooled"),
    *("leaves/wide", "diamonds/mlp", "exercises/deep", "speakers/conv", "instruments/picture"),
    *("cifar10/resnet20-black-2-b", "cifar10/resnet20-reflect-b", "cifar10/mobilenet-b"),
    *("cifar10/vgg", "cifar10/densenet"),
    *("natural/lite0", "natural/espnet-q8", "natural/crepe"),
)

NETWORKS: dict[Half, tuple[str, ...]] = {"development": DEVELOPMENT, "test": TEST}

NATURAL: dict[str, Half] = {
    "MNIST": "development",
    "other people": "development",
    "PACS photo": "development",
    "edges": "development",
    "CamVid day": "development",
    "digits": "test",
    "PACS art": "test",
    "cue conflict": "test",
    "CamVid dusk": "test",
    "CamVid 0016E5": "test",
    "instruments": "test",
}
"""Data of the same classes that nobody corrupted."""
