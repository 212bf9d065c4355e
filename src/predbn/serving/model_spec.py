"""Inputs and outputs of a served model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import ServingError, first_line
from predbn.data import CRITEO_WIDTH
from predbn.models import Classifier, ClickModel, Preprocessing
from predbn.norm import device_of

from .tensors import DATATYPES, datatype_of

OUTPUTS = "probabilities", "logits"


@dataclass(frozen=True)
class ModelSpec:
    """One input of rows of one shape and type; probabilities and logits of the classes as outputs."""

    name: str
    input: str
    datatype: str
    row_shape: tuple[int, ...]
    classes: int
    labels: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    """The preprocessing of pictures; None if the model does not take pictures."""

    def metadata(self) -> dict[str, Any]:
        """The response to GET v2/models/NAME."""
        return {
            "name": self.name,
            "versions": ["1"],
            "platform": "pytorch_predbn",
            "inputs": [{"name": self.input, "datatype": self.datatype, "shape": [-1, *self.row_shape]}],
            "outputs": [{"name": name, "datatype": "FP32", "shape": [-1, self.classes]} for name in OUTPUTS],
        }


def spec_of(
    model: nn.Module, name: str, *, example: Tensor | None = None, labels: tuple[str, ...] | None = None
) -> ModelSpec:
    """The specification of a model. A custom model needs an `example`: a batch of inputs of any size.

    Without `labels`, the classes have the names that the model comes with, if any.
    """
    preprocessing = None
    if isinstance(model, Classifier):
        preprocessing, labels = model.info.preprocessing, labels or model.info.class_names or None
        input_name, example = "images", preprocessing.example()
    elif isinstance(model, ClickModel):
        input_name, example = "rows", torch.zeros(2, CRITEO_WIDTH, dtype=torch.int32)
    elif example is None:
        raise ServingError(
            f"the input of a {type(model).__name__} is unknown: give example=, a batch of inputs, as in "
            "predbn.serve(model, example=torch.zeros(1, 3, 224, 224))."
        )
    else:
        input_name = "input"
    datatype = datatype_of(example.dtype)
    if datatype is None or example.dim() == 0:
        raise ServingError(f"expected rows of {', '.join(DATATYPES)}, got {example.dtype} {list(example.shape)}.")
    classes = _count_classes(model, example)
    if labels is not None and len(labels) != classes:
        raise ServingError(f"expected one label for each of {classes} classes, got {len(labels)}.")
    return ModelSpec(name, input_name, datatype, tuple(example.shape[1:]), classes, labels, preprocessing)


def _count_classes(model: nn.Module, example: Tensor) -> int:
    """The number of outputs of the model per row, from two copies of the first row."""
    rows = example[:1].expand(2, *example.shape[1:]).to(device_of(model))
    was_training = model.training
    try:
        with torch.inference_mode():
            logits = model.eval()(rows)
    except Exception as error:
        raise ServingError(f"the model failed on the example ({first_line(error)}).") from error
    finally:
        model.train(was_training)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != 2 or not logits.is_floating_point():
        raise ServingError("the model must return class scores, [N, classes].")
    return int(logits.shape[1])
