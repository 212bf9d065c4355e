"""Weight files: safetensors with matrices in fp16 and vectors in fp32.

The vectors (normalisation statistics and parameters, biases) are few and sensitive: a running variance of 1e-6 has
two digits in fp16. Rounding matrices and filters to fp16 does not visibly change a prediction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from predbn.common import ModelError, write_bytes


def compact(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict as it is stored: floating-point tensors of two or more dimensions as fp16, others as fp32.

    A matrix with a value beyond fp16's 65,504 stays in fp32.
    """
    return {name: _stored(tensor.detach().cpu()).contiguous() for name, tensor in state.items()}


def _stored(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    half = tensor.half()
    return half if tensor.ndim > 1 and bool(half.isfinite().all()) else tensor.float()


def write_weights(path: str | Path, state: dict[str, Tensor], card: dict[str, Any] | None = None) -> None:
    """Write a state dict and its card atomically."""
    path = Path(path)
    metadata = {"card": json.dumps(card, sort_keys=True)} if card is not None else None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, save(compact(state), metadata))


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a weight file and the card inside it; the card is empty if the file has none.

    Reads `.safetensors`, and `.pt` or `.pth` files with a state dict, alone or under "state_dict" or "model". Only
    tensors are unpickled.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"{path} does not exist: name a .safetensors or .pt file with the weights.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"{path} cannot be read as a file of tensors ({reason}): save `model.state_dict()` there."
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path} does not contain a state dict: save `model.state_dict()` there.")
    return {name.removeprefix("module."): tensor for name, tensor in content.items()}, {}


def load_weights(network: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Copy a state dict into a network, in the network's precision.

    A ModelError names the first tensor that does not fit; the network is then unchanged. `source` is where the
    weights come from, for the message.
    """
    expected = network.state_dict()
    missing = [name for name in expected if name not in state and not name.endswith("num_batches_tracked")]
    unknown = [name for name in state if name not in expected]
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which the network does not have"
        more = len(missing) + len(unknown) - 1
        raise ModelError(
            f"{source} does not fit the network: it {what}" + (f", and {more} more names differ." if more else ".")
        )
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise ModelError(
                f"{source} does not fit the network: {name} is {list(tensor.shape)} in the file and "
                f"{list(expected[name].shape)} in the network."
            )
    network.load_state_dict(state, strict=False)


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} cannot be read as safetensors ({error}): it may be truncated; download it again."
        ) from None
    return tensors, _parse_card(metadata.get("card", "{}"))


def _parse_card(text: str) -> dict[str, Any]:
    """The card; empty if another program uses the key for something else."""
    try:
        card = json.loads(text)
    except ValueError:
        return {}
    return card if isinstance(card, dict) else {}
