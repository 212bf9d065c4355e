"""Models: ResNet v1 with a choice of normalisation, references to outside models, the zoo of trained weights.

`load("zoo:resnet20-cifar10/batch/3")` gives a Classifier, which takes pictures as they are and prepares them itself.
"""

from .classifier import Classifier, Description
from .errors import ModelError
from .preprocessing import Preprocessing
from .references import expand, load
from .resnet import ResNet, resnet20, resnet50
from .restricted import restrict

__all__ = [
    "Classifier",
    "Description",
    "ModelError",
    "Preprocessing",
    "ResNet",
    "expand",
    "load",
    "resnet20",
    "resnet50",
    "restrict",
]
