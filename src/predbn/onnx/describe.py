"""The batch norm of a file, and how it was adapted.

`adapt` writes the description as JSON into the metadata of the model, under the key "predbn".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from predbn.common import ModelError

from .layers import Layer, find_convolutions, find_layers
from .model_files import errors_of_file, read_model
from .state import NEXT_STATE, STATE

METADATA = "predbn"


@dataclass(frozen=True)
class LayerDescription:
    """A layer: the name of its node, its operator before adapting, and its number of channels if known."""

    name: str
    operator: str
    channels: int | None


@dataclass(frozen=True)
class Description:
    """The result of `describe`.

    opset          the version of the operators
    strategy       None for a file that is not adapted
    robust         whether the influence of each example on the moments is bounded
    examples       the number of source examples of the calibration; None without one
    layers         the adapted layers, or the BatchNormalization nodes of a file that is not adapted
    convolutions   the number of others with a bias, into which batch norm may have been folded
    batch          the batch size, if it is fixed
    state          the number of values of the state of a stream, if the strategy keeps one
    """

    opset: int
    strategy: str | None
    robust: bool
    examples: int | None
    layers: tuple[LayerDescription, ...]
    convolutions: int
    batch: int | None
    state: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        operators = [layer.operator for layer in self.layers]
        counts = {"batch norm layer": operators.count("BatchNormalization"), "convolution": operators.count("Conv")}
        layers = " and ".join(f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count)
        if self.strategy is None:
            sentences = [f"The file has {layers or 'no batch norm layers'} in opset {self.opset}, and is not adapted."]
        else:
            robust = ", with robust moments" if self.robust else ""
            calibrated = "" if self.examples is None else f", calibrated on {self.examples:,} examples"
            sentences = [
                f"The statistics of {layers} come from {self.strategy}{robust}{calibrated} (opset {self.opset})."
            ]
        if self.state is not None:
            sentences.append(
                f"The first batch of a stream takes {self.state} zeros as its input '{STATE}', each later one the "
                f"output '{NEXT_STATE}' of the batch before."
            )
        if self.convolutions:
            sentences.append(
                f"Other convolutions with a bias: {self.convolutions}. Batch norm may have been folded into them; "
                "convolutions=True and source data insert statistics there."
            )
        if self.batch is not None:
            sentences.append(
                f"The file takes batches of {self.batch} only, because it was exported without a dynamic batch: "
                "statistics are those of so few examples."
            )
        return sentences

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def describe(path: str | Path) -> Description:
    """Describe the batch norm of a file; for one that `adapt` wrote, which nodes were changed, and how."""
    model = read_model(Path(path))
    text = model.metadata_props.get(METADATA)
    if text is None:
        with errors_of_file(Path(path)):
            return description_of(model, find_layers(model))
    try:
        fields = json.loads(text)
        fields["layers"] = tuple(LayerDescription(**layer) for layer in fields["layers"])
        return Description(**fields)
    except (ValueError, TypeError, KeyError):
        raise ModelError(f"{path} has damaged metadata: adapt the original file again.") from None


def description_of(
    model: ir.Model,
    layers: list[Layer],
    *,
    strategy: str | None = None,
    robust: bool = False,
    examples: int | None = None,
) -> Description:
    """The description of a model before its layers are changed."""
    nodes = {layer.node for layer in layers}
    others = sum(node not in nodes for node in find_convolutions(model))
    described = tuple(LayerDescription(layer.name, layer.node.op_type, layer.channels) for layer in layers)
    return Description(model.opset_imports[""], strategy, robust, examples, described, others, _fixed_batch(model))


def _fixed_batch(model: ir.Model) -> int | None:
    """The first dimension of the first input that is not an initialiser, if it is a number."""
    for value in model.graph.inputs:
        if not value.is_initializer():
            size = value.shape[0] if value.shape else None
            return size if isinstance(size, int) and size > 0 else None  # some exporters write -1
    return None
