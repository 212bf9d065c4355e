"""What a served model takes and gives, as its metadata says it."""

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
    """One input with rows of one shape and type; probabilities and logits of so many classes as outputs."""

    name: str
    input: str
    datatype: str
    row_shape: tuple[int, ...]
    classes: int
    labels: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    """How pictures are resized; None if the model does not take pictures."""

    def metadata(self) -> dict[str, Any]:
        """The answer to GET v2/models/NAME."""
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
    """What a model takes and gives. For a model of one's own, `example` is a batch that it takes, of any size."""
    preprocessing = None
    if isinstance(model, Classifier):
        preprocessing = model.info.preprocessing
        input_name, example = "images", torch.zeros(2, 3, *preprocessing.size, dtype=torch.uint8)
    elif isinstance(model, ClickModel):
        input_name, example = "rows", torch.zeros(2, CRITEO_WIDTH, dtype=torch.int32)
    elif example is None:
        raise ServingError(
            f"a {type(model).__name__} does not say what it takes: give example=, a batch of inputs, as in "
            "predbn.serve(model, example=torch.zeros(1, 3, 224, 224))."
        )
    else:
        input_name = "input"
    datatype = datatype_of(example.dtype)
    if datatype is None or example.dim() == 0:
        raise ServingError(
            f"the example is {example.dtype} {list(example.shape)}: give rows of {', '.join(DATATYPES)}."
        )
    classes = _count_classes(model, example)
    if labels is not None and len(labels) != classes:
        raise ServingError(f"there are {len(labels)} labels, but the model has {classes} classes: give one for each.")
    return ModelSpec(name, input_name, datatype, tuple(example.shape[1:]), classes, labels, preprocessing)


def _count_classes(model: nn.Module, example: Tensor) -> int:
    """How many scores the model gives for each row, found with two copies of the first row."""
    rows = example[:1].expand(2, *example.shape[1:]).to(device_of(model))
    was_training = model.training
    try:
        with torch.inference_mode():
            logits = model.eval()(rows)
    except Exception as error:
        raise ServingError(f"the model cannot predict the example ({first_line(error)}).") from error
    finally:
        model.train(was_training)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != 2 or not logits.is_floating_point():
        raise ServingError("the model must give one row of class scores for each example, [N, classes].")
    return int(logits.shape[1])
