"""`adapt`: from one file to another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from predbn.common import AdaptationError, ModelError, Progress
from predbn.norm import Auto, Batch, Calibration, Ema, Frozen, Prior, Strategy, find_strategy, select_by_name

from .describe import METADATA, Description, description_of
from .layers import Layer, find_convolutions, find_layers, set_to_inference
from .measure import measure
from .model_files import convert, errors_of_file, read_model, write_model
from .rewrite import Rewriter
from .state import State

FIRST_OPSET = 7
"""Since then, batch norm has its inputs and its form for inference."""
OPSET = 13
"""Files of earlier opsets are converted to this one."""
_MIN_IR_VERSION = 4
"""Before this version, initialisers had to be inputs too."""


def adapt(
    path: str | Path,
    out: str | Path,
    strategy: str | Strategy = "batch",
    *,
    loader: Iterable[Any] | None = None,
    robust: bool | None = None,
    layers: str | Iterable[str] = "all",
    convolutions: bool | None = None,
    progress: Progress | None = None,
    **arguments: Any,
) -> Description:
    """Write a copy of an ONNX file whose batch norm layers use the statistics of the batch being predicted.

    path, out      the file to read, and the file to write
    strategy       "batch", "prior" (with N=…), "auto", or "ema" and "frozen", whose state is an input and an output
    loader         unlabelled source data, for `auto` (optional, but better) and for convolutions into which batch norm
                   was folded: batches as arrays or tensors, tuples that begin with one for each input of the model, or
                   dictionaries by input name. onnxruntime predicts them
    robust         bound the influence of each example on the moments; by default `auto` does
    layers         which layers, by the names of their nodes: "all", "first", "last", or patterns such as "*layer4*"
    convolutions   whether to insert statistics behind convolutions with a bias (see `layers.py`); by default if the
                   file has no BatchNormalization node and there is a loader
    progress       called with (batches done, 0), since their number is unknown
    arguments      of the strategy, such as N=16

    Predictions equal those of `predbn.adapt` in PyTorch with the same strategy. The file is written atomically. Returns
    a description of the changes.
    """
    path, out = Path(path), Path(out)
    chosen = _check_strategy(strategy, arguments)
    is_robust = chosen.bounds is not None if robust is None else robust
    model = read_model(path)
    if out.exists() and out.samefile(path):
        raise AdaptationError(f"{out} is the input file: choose another name, so that the original is kept")
    with errors_of_file(path):
        model = _prepared(model, path)
        selected = _select(model, path, layers, convolutions, has_loader=loader is not None)
        if loader is not None or chosen.keeps_state:
            _check_layers(model, selected, keeps_state=chosen.keeps_state)
    calibrations: dict[Layer, Calibration | None] = dict.fromkeys(selected)
    if loader is not None:
        uses_calibration = chosen.calibration == "needed" or (is_robust and chosen.calibration == "optional")
        if not uses_calibration and not any(layer.is_convolution for layer in selected):
            raise AdaptationError(f"strategy '{chosen.name}' does not use source data: leave out loader=…")
        calibrations = dict(measure(model, path, selected, loader, progress))
        selected = list(calibrations)
        if not selected:
            raise AdaptationError(f"{path} has no convolution whose output has more than one position")
    sizes = [calibration.size for calibration in calibrations.values() if calibration is not None]
    with errors_of_file(path):
        description = description_of(
            model,
            selected,
            strategy=f"{chosen}, not calibrated" if chosen.calibration == "needed" and not sizes else str(chosen),
            robust=is_robust,
            examples=min(sizes, default=None),
        )
        state = State(model) if chosen.keeps_state else None
        rewriter = Rewriter(model, chosen, is_robust, len(selected), state)
        for layer, calibration in calibrations.items():
            rewriter.rewrite(layer, None if chosen.calibration == "ignored" else calibration)
        if state is not None:
            state.finish()
            description = replace(description, state=state.size)
        RemoveUnusedNodesPass()(model)
        model.ir_version = max(model.ir_version, _MIN_IR_VERSION)
        model.metadata_props[METADATA] = json.dumps(description.to_dict())
        write_model(model, out)
    return description


def _check_strategy(strategy: str | Strategy, arguments: dict[str, Any]) -> Strategy:
    """The strategy, if a file can hold it."""
    chosen = find_strategy(strategy, **arguments)
    if type(chosen) not in (Batch, Prior, Ema, Frozen, Auto):
        raise AdaptationError(
            f"strategy '{chosen.name}' is not supported in ONNX files: use batch, prior, ema, frozen or auto"
        )
    if chosen.pass_count > 1:
        raise AdaptationError(
            f"strategy '{chosen}' makes {chosen.pass_count} passes, and an ONNX file makes one: use 'auto'"
        )
    if isinstance(chosen, Prior) and math.isinf(chosen.N):
        raise AdaptationError("N must be finite: with N=inf, 'prior' changes nothing")
    return chosen


def _prepared(model: ir.Model, path: Path) -> ir.Model:
    """The model in an opset that can be written, and in inference mode."""
    opset = model.opset_imports.get("", 0)
    if opset < FIRST_OPSET:
        raise ModelError(f"{path} has opset {opset}, but at least {FIRST_OPSET} is needed: export it again")
    if METADATA in model.metadata_props:
        raise AdaptationError(f"{path} is already adapted: adapt the original file")
    if opset < OPSET:
        model = convert(model, path, OPSET)
    set_to_inference(model)
    return model


def _check_layers(model: ir.Model, layers: list[Layer], *, keeps_state: bool) -> None:
    """A calibration needs inputs that can become outputs, and so does a state, whose size must be known."""
    for layer in layers:
        if layer.node.graph is not model.graph:
            reason = "is in a branch or a loop, where it can have neither source data nor a state"
        elif keeps_state and layer.channels is None:
            reason = "has a computed bias, so that the size of its state is unknown"
        else:
            continue
        raise AdaptationError(f"node '{layer.name}' {reason}: exclude it with layers=…")


def _select(
    model: ir.Model, path: Path, patterns: str | Iterable[str], convolutions: bool | None, *, has_loader: bool
) -> list[Layer]:
    """The layers to adapt; raises if there are none."""
    candidates = find_layers(model)
    if convolutions and not has_loader:
        raise AdaptationError("convolutions=True needs source data for their statistics: give loader=…")
    if convolutions or (convolutions is None and not candidates and has_loader):
        candidates = find_layers(model, convolutions=True)
    if candidates:
        return select_by_name({layer: [layer.name] for layer in candidates}, patterns)
    count = len(find_convolutions(model))
    hint = (
        f"; batch norm was probably folded into its {count} convolutions with a bias: export it again without folding "
        "(torch.onnx.export with dynamo=True and optimize=False), or give source data (loader=…)"
    )
    raise AdaptationError(
        f"{path} has no BatchNormalization nodes{hint if count else ' and no convolutions with a bias'}"
    )
