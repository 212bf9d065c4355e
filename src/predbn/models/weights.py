"""Weight files: safetensors with matrices in fp16 and vectors in fp32.

The vectors (normalisation statistics and parameters, biases) are few and sensitive: a running variance of 1e-6 has
two digits in fp16. Rounding matrices and filters to fp16 does not visibly change a prediction.

A file has one entry of metadata, "card": the card of the network, if it has one, with the checksum of the file. With
two entries, the order in which safetensors writes them, and thus the bytes of the file, would be random.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from predbn.common import CHECKSUM_FIELD, ModelError, atomic_write, first_line, read_checked, read_torch_file

_CHECKSUM = "checksum"
_SAVE = "save `model.state_dict()` there"


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


def _copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU: safetensors refuses tensors that share memory."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}


def write_weights(
    path: str | Path, state: dict[str, Tensor], card: dict[str, Any] | None = None, *, half: bool = True
) -> None:
    """Write a state dict and its card atomically, with a checksum; without `half`, every tensor bit for bit."""
    path = Path(path)
    metadata = {"card": json.dumps({**(card or {}), _CHECKSUM: CHECKSUM_FIELD}, sort_keys=True)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, checksum=True) as partial:
        partial.write_bytes(save(compact(state) if half else _copied(state), metadata))


def read_weights(path: str | Path, *, sha256: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a weight file and the card inside it; the card is empty if the file has none.

    Reads `.safetensors`, and `.pt` or `.pth` files with a state dict, alone or under "state_dict" or "model". Only
    tensors are unpickled. A `.safetensors` file must have the `sha256` if it is given.
    """
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path, sha256)
        content = read_torch_file(path, kind="a file of tensors", error=ModelError, remedy=_SAVE)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist: name a .safetensors or .pt file with the weights.") from None
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path} does not contain a state dict: {_SAVE}.")
    for name, tensor in content.items():
        if not isinstance(name, str):
            raise ModelError(f"{path} does not contain a state dict (the key {name!r} is not a string): {_SAVE}.")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex() or tensor.is_meta:
            raise ModelError(
                f"{path} has the tensor {name!r}, which is sparse, quantised, complex or without values: store dense "
                "tensors of real numbers."
            )
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


def _read_safetensors(path: Path, sha256: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    remedy = "it may be truncated; download it again"
    content = read_checked(path, error=ModelError, remedy=remedy)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise ModelError(f"{path} is damaged (its SHA-256 is not {sha256}): {remedy}.")
    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except Exception as error:  # besides its own errors, safetensors raises KeyErrors for types that torch lacks
        reason = first_line(error)
        raise ModelError(f"{path} cannot be read as safetensors ({reason}): {remedy}.") from None
    return tensors, _parse_card(header.get("__metadata__", {}).get("card", "{}"))


def _parse_card(text: str) -> dict[str, Any]:
    """The card without the checksum; empty if another program uses the key for something else."""
    try:
        card = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(card, dict):
        return {}
    card.pop(_CHECKSUM, None)
    return card
