"""`adapt` changes the class of each layer to a subclass, and `restore` changes it back.

Weights, names and the structure of the model do not change. Functions that Keras has compiled for `predict`, `evaluate`
and `fit` are discarded, because they contain the previous behaviour of the layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from predbn.common import AdaptationError
from predbn.norm import Batch, Prior, Strategy, find_strategy, select_by_name

from .adapted_layer import AdaptedLayer

M = TypeVar("M")

_STRATEGY = "_predbn_strategy"


def adapt(model: M, strategy: str | Strategy = "batch", *, layers: str | Iterable[str] = "all", **arguments: Any) -> M:
    """Make the batch norm layers of a Keras model use the statistics of the batch being predicted.

    strategy   "batch", or "prior" with N=…; the others need PyTorch
    arguments  of the strategy
    layers     which layers, by name: "all", "first", "last", or patterns such as "conv5_*"

    Returns the model itself. With training=True it works as before; otherwise moving statistics never change.
    `model.save` writes the model without the adaptation.
    """
    chosen = find_strategy(strategy, **arguments)
    if type(chosen) not in (Batch, Prior):
        raise AdaptationError(f"strategy '{chosen.name}' is not available for Keras: use batch or prior")
    available = _batch_norm_layers(model)
    if not available:
        raise AdaptationError(f"the model '{_name(model)}' has no BatchNormalization layers")
    selected = select_by_name({layer: [layer.name] for layer in available}, layers)
    for layer in selected:
        _check_layer(layer)
    restore(model)
    for layer in selected:
        layer.__dict__[_STRATEGY] = chosen  # setattr would register it in Keras and torch
        layer.__class__ = _adapted_class(type(layer))  # type: ignore[arg-type]
    return model


def restore(model: M) -> M:
    """Undo `adapt`."""
    for layer in _batch_norm_layers(model):
        if isinstance(layer, AdaptedLayer):
            del layer.__dict__[_STRATEGY]
            layer.__class__ = type(layer).__bases__[1]
    _forget_compiled_functions(model)
    return model


def _batch_norm_layers(model: Any) -> list[Any]:
    """All BatchNormalization layers, including those of nested models."""
    try:
        import keras
    except ImportError as error:
        raise AdaptationError(
            f"{error.name} cannot be imported: run `pip install predbn[keras]`, and set KERAS_BACKEND to torch, jax or "
            "tensorflow, whichever is installed"
        ) from None
    if not isinstance(model, keras.Layer):
        raise AdaptationError(f"expected a Keras model, got {type(model).__name__}; predbn.adapt is for PyTorch")
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]


def _check_layer(layer: Any) -> None:
    import keras

    if not layer.built:
        raise AdaptationError(f"layer '{layer.name}' is not built: call the model on a batch first")
    if type(layer).call not in (keras.layers.BatchNormalization.call, AdaptedLayer.call):
        raise AdaptationError(
            f"layer '{layer.name}' is a {type(layer).__qualname__}, which overrides call: exclude it with layers=…"
        )
    if layer.synchronized:
        raise AdaptationError(
            f"layer '{layer.name}' is synchronised over replicas, which is not supported: exclude it with layers=…"
        )


@cache
def _adapted_class(source: type[Any]) -> type[Any]:
    """The adapted subclass, with the same name, because `model.save` writes it."""
    attributes = {"__module__": source.__module__, "__qualname__": source.__qualname__, "__doc__": source.__doc__}
    return type(source.__name__, (AdaptedLayer, source), attributes)


def _forget_compiled_functions(model: Any) -> None:
    for part in model._flatten_layers():
        for name in ("train_function", "test_function", "predict_function"):
            if getattr(part, name, None) is not None:
                setattr(part, name, None)


def _name(model: Any) -> str:
    return str(getattr(model, "name", type(model).__name__))
