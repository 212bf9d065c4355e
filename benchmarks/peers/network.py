"""A network of the zoo that takes pixels as floats, so that gradients reach them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import predbn
from predbn.data import Images
from predbn.models import Classifier, load
from predbn.shifts import orders

_CALIBRATION_BATCH = 500


class PixelNetwork(nn.Module):
    """A classifier with its preprocessing. Pixels go from 0 to 255 as in a `Classifier`, but may have any dtype."""

    scale: Tensor
    shift: Tensor

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.network, self.classes = classifier.network, classifier.info.classes
        self.register_buffer("scale", classifier.normalise.scale)
        self.register_buffer("shift", classifier.normalise.shift)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(self._normalised(images))
        return logits

    def features(self, images: Tensor) -> Tensor:
        """What the last linear layer turns into logits, [N, features]."""
        features: Tensor = self.network.embed(self._normalised(images))
        return features

    def classify(self, features: Tensor) -> Tensor:
        """The logits of features."""
        logits: Tensor = self.network.fc(features)
        return logits

    def _normalised(self, images: Tensor) -> Tensor:
        return torch.addcmul(self.shift, images.to(self.scale.dtype), self.scale)


def calibrated_network(reference: str, clean: Images, device: torch.device) -> PixelNetwork:
    """A network of the zoo, calibrated on clean images without their labels, as `predbn evaluate` does it."""
    network = PixelNetwork(load(reference)).to(device).eval().requires_grad_(False)
    order = orders.shuffled(len(clean), seed=0)
    batches = clean.batches(_CALIBRATION_BATCH, order=order, device=device)
    return predbn.calibrate(network, (batch.images for batch in batches))
