"""Models: ResNet v1 with a choice of normalisation, references to outside models, the zoo of trained weights."""

from .classifier import Classifier, Description
from .errors import ModelError
from .preprocessing import Preprocessing
from .resnet import ResNet, resnet20, resnet50

__all__ = ["Classifier", "Description", "ModelError", "Preprocessing", "ResNet", "resnet20", "resnet50"]
