"""The calibration of a model as a file, so that a server does not need the data that it was measured on."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from predbn.common import ServingError, read_tensors, write_tensors
from predbn.norm import adapt, load_state_dict, state_dict

_REMEDY = "write it with predbn calibrate, or predbn.serving.save_calibration(model, path)"


def save_calibration(model: nn.Module, path: str | Path) -> None:
    """Write the result of `predbn.calibrate(model, …)`."""
    calibration = state_dict(model)["calibration"]
    if not calibration:
        raise ServingError("the model is not calibrated: call predbn.calibrate(model, loader) first.")
    write_tensors(Path(path), {"calibration": calibration})


def load_calibration(model: nn.Module, path: str | Path) -> None:
    """Load the calibration of a model. The model becomes adapted with "train", which changes no prediction."""
    try:
        content = read_tensors(Path(path), kind="a calibration", error=ServingError, remedy=_REMEDY)
    except FileNotFoundError:
        raise ServingError(f"{path} does not exist: {_REMEDY}.") from None
    if not isinstance(content.get("calibration"), dict):
        raise ServingError(f"{path} is not a calibration: {_REMEDY}.")
    adapt(model, "train")
    state = state_dict(model)
    unknown = set(content["calibration"]) - set(state["strategies"])
    if unknown:
        raise ServingError(f"{path} is of another model: this one has no layer '{min(unknown)}'.")
    load_state_dict(model, {**state, "calibration": content["calibration"]})
