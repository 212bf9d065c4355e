"""The model card: what one needs to repeat a trained network, and what it scores on the clean test images."""

from __future__ import annotations

from typing import Any

import torch

import predbn
from predbn.common import commit
from predbn.data import Images
from predbn.metrics import Scores
from predbn.models import Classifier

from .recipe import Recipe

__all__ = ["make", "score"]


def score(classifier: Classifier, images: Images, *, size: int = 500) -> dict[str, float]:
    """Accuracy, NLL, Brier score and ECE (10 bins) with the statistics of training, in fp32 without TF32."""
    scores = Scores(len(images.classes))
    classifier.eval()
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.no_grad():
            for batch in images.batches(size, device=next(classifier.parameters()).device):
                logits = classifier(batch.images)
                scores.update(logits.softmax(1), batch.labels, log_probabilities=logits.log_softmax(1))
    finally:
        torch.backends.cudnn.allow_tf32 = tf32
    found = scores.compute()
    return {name: round(found[name], 6) for name in ("accuracy", "nll", "brier", "ece")}


def make(
    recipe: Recipe,
    seed: int,
    device: torch.device,
    *,
    data: dict[str, Images],
    validation_accuracy: float,
    test_scores: dict[str, float],
) -> dict[str, Any]:
    """The card as plain data; `data` has the images of "train", "validation" and "test"."""
    return {
        "architecture": f"resnet20-cifar10/{recipe.norm}",
        "seed": seed,
        "recipe": {"optimiser": "AdamW" if recipe.decoupled else "Adam", **recipe.describe()},
        "augmentation": "zero-pad 4, random crop 32, random flip, pixels to [-1, 1]",
        "trained_on": f"{data['train'].name}: {len(data['train']):,} images",
        "validated_on": f"{data['validation'].name}: {len(data['validation']):,} images",
        "data": {part: images.sums for part, images in data.items()},
        "validation_accuracy": round(validation_accuracy, 4),
        "test": {"images": len(data["test"]), **test_scores},
        "storage": "matrices fp16, vectors fp32; the scores are of the weights as stored",
        "software": {"predbn": predbn.__version__, "commit": commit(), "torch": torch.__version__},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }
