"""What a file says about its batch norm, and what was changed in one that was adapted.

`adapt` writes this as JSON into the metadata of the model, under the key "predbn".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from predbn.common import ModelError

from .layers import Layer, find_convolutions, find_layers, inline_functions
from .model_files import read_model

METADATA = "predbn"


@dataclass(frozen=True)
class LayerDescription:
    """A layer: the name of its node, the operator that stands or stood there, and its channels if they are known."""

    name: str
    operator: str
    channels: int | None


@dataclass(frozen=True)
class Description:
    """What `describe` tells about a file.

    opset          the version of the operators
    strategy       what the layers were adapted with; None for a file that was not adapted
    robust         whether the influence of each example on the moments is bounded
    examples       how many source examples it was calibrated with; None without calibration
    layers         those that were adapted, or the BatchNormalization nodes of a file that was not
    convolutions   how many others have a bias and no batch norm behind them, which may have been folded into them
    batch          the number of examples that the model takes if it takes no other number
    """

    opset: int
    strategy: str | None
    robust: bool
    examples: int | None
    layers: tuple[LayerDescription, ...]
    convolutions: int
    batch: int | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """The same in words."""
        kinds = [
            _counted(count, what)
            for operator, what in (("BatchNormalization", "batch norm layer"), ("Conv", "convolution"))
            if (count := sum(layer.operator == operator for layer in self.layers))
        ]
        found = " and ".join(kinds) or "no batch norm layers"
        if self.strategy is None:
            sentences = [f"The file has {found} in opset {self.opset}, and was not adapted."]
        else:
            how = ", with robust moments" if self.robust else ""
            known = "" if self.examples is None else f", calibrated on {self.examples:,} examples"
            sentences = [f"The statistics of {found} come from {self.strategy}{how}{known} (opset {self.opset})."]
        if self.convolutions:
            has, them = ("has", "it") if self.convolutions == 1 else ("have", "them")
            sentences.append(
                f"{_counted(self.convolutions, 'other convolution')} {has} a bias: batch norm may have been folded "
                f"into {them}, and convolutions=True with source data gives {them} statistics again."
            )
        if self.batch is not None:
            sentences.append(
                f"The file takes batches of {self.batch} only, because it was exported without a dynamic batch: "
                "statistics are those of so few examples."
            )
        return sentences

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def describe(path: str | Path) -> Description:
    """What a file says about its batch norm; for one that `adapt` wrote, which nodes were changed, and how."""
    model = read_model(Path(path))
    text = model.metadata_props.get(METADATA)
    if text is None:
        inline_functions(model)
        return description_of(model, find_layers(model))
    try:
        fields = json.loads(text)
        fields["layers"] = tuple(LayerDescription(**each) for each in fields["layers"])
        return Description(**fields)
    except (ValueError, TypeError, KeyError):
        raise ModelError(f"{path} was adapted by another version of predbn, which this one cannot describe.") from None


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
            return size if isinstance(size, int) else None
    return None
