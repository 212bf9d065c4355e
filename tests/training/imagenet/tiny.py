"""A network and a folder small enough to train in a moment."""

from pathlib import Path

from predbn.models.resnet import ResNet
from predbn.training import ImageNetRecipe
from tests.data.folders import make_folder

RECIPE = ImageNetRecipe(epochs=3, warm_up=1, batch_size=4, size=16, learning_rate=0.05)


def tiny_resnet(*, eps: float, classes: int) -> ResNet:
    return ResNet((1, 1), (4, 8), classes=classes, norm="batch", eps=eps, imagenet_stem=True)


def tiny_by_image(*, eps: float, classes: int) -> ResNet:
    """Each image is normalised by itself, so that dividing a batch does not change the result."""
    return ResNet((1, 1), (4, 8), classes=classes, norm="layer", eps=eps, imagenet_stem=True)


def tiny_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    make_folder(root / "train", classes, each=7, height=24, width=30)
    make_folder(root / "val", classes, each=3, height=24, width=30)
    return root
