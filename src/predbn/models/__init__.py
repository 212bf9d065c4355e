"""Models: ResNet v1 with a choice of normalisation, the Criteo network, outside models by reference, a zoo of weights.

`load("zoo:resnet20-cifar10/batch/3")` gives a Classifier, which takes pictures as they are and prepares them itself.
"""

from predbn.common import ModelError

from . import zoo
from .classifier import Classifier, Description
from .criteo import ClickModel, CriteoNetwork, CriteoSizes, load_criteo, plain_sizes
from .kernels import accelerate, accelerate_prediction
from .normalisation import NORMALISATIONS
from .normalisation import find as find_normalisation
from .preprocessing import IMAGENET as IMAGENET_PREPROCESSING
from .preprocessing import SIGNED as SIGNED_PREPROCESSING
from .preprocessing import Normalise, Preprocessing
from .references import AnyModel, expand, load, open_model
from .resnet import ResNet, resnet20, resnet50
from .restricted import restrict
from .weights import load_into
from .weights import read as read_weights
from .weights import write as write_weights

__all__ = [
    "IMAGENET_PREPROCESSING",
    "NORMALISATIONS",
    "SIGNED_PREPROCESSING",
    "AnyModel",
    "Classifier",
    "ClickModel",
    "CriteoNetwork",
    "CriteoSizes",
    "Description",
    "ModelError",
    "Normalise",
    "Preprocessing",
    "ResNet",
    "accelerate",
    "accelerate_prediction",
    "expand",
    "find_normalisation",
    "load",
    "load_criteo",
    "load_into",
    "open_model",
    "plain_sizes",
    "read_weights",
    "resnet20",
    "resnet50",
    "restrict",
    "write_weights",
    "zoo",
]
