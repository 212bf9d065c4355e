"""Models: ResNet v1 with a choice of normalisation, the Criteo network, pretrained models, and a zoo of weights.

`load("zoo:resnet20-cifar10/batch/3")` gives a Classifier, which takes uint8 images and normalises them itself.
"""

from predbn.common import ModelError, needs_extra

with needs_extra("eval"):
    import safetensors as _safetensors  # noqa: F401

from . import zoo
from .classifier import Classifier, ModelInfo, restrict
from .criteo import ClickModel, CriteoNetwork, CriteoSizes, load_criteo
from .loading import AnyModel, expand, load, match_channels, open_model
from .normalisation import NORMALISATIONS, find_normalisation
from .preprocessing import IMAGENET as IMAGENET_PREPROCESSING
from .preprocessing import SIGNED as SIGNED_PREPROCESSING
from .preprocessing import Normalise, Preprocessing
from .resnet import resnet20, resnet50
from .weights import load_weights, read_weights, write_weights

__all__ = [
    "IMAGENET_PREPROCESSING",
    "NORMALISATIONS",
    "SIGNED_PREPROCESSING",
    "AnyModel",
    "Classifier",
    "ClickModel",
    "CriteoNetwork",
    "CriteoSizes",
    "ModelError",
    "ModelInfo",
    "Normalise",
    "Preprocessing",
    "expand",
    "find_normalisation",
    "load",
    "load_criteo",
    "load_weights",
    "match_channels",
    "open_model",
    "read_weights",
    "resnet20",
    "resnet50",
    "restrict",
    "write_weights",
    "zoo",
]
