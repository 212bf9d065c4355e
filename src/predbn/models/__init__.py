"""Models: ResNet v1 with a choice of normalisation, the Criteo network, outside models by reference, a zoo of weights.

`load("zoo:resnet20-cifar10/batch/3")` gives a Classifier, which takes pictures as they are and prepares them itself.
"""

from .classifier import Classifier, Description
from .criteo import ClickModel, CriteoNetwork, CriteoSizes, load_criteo
from .errors import ModelError
from .preprocessing import Preprocessing
from .references import AnyModel, expand, load, open_model
from .resnet import ResNet, resnet20, resnet50
from .restricted import restrict

__all__ = [
    "AnyModel",
    "Classifier",
    "ClickModel",
    "CriteoNetwork",
    "CriteoSizes",
    "Description",
    "ModelError",
    "Preprocessing",
    "ResNet",
    "expand",
    "load",
    "load_criteo",
    "open_model",
    "resnet20",
    "resnet50",
    "restrict",
]
