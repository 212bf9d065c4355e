"""torch.compile for adapted models, with statistics and normalisation fused into convolutions."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx, nn

from predbn.common import AdaptationError

from .fusion import Fusion, fuse
from .layers import unwrapped

_REPORTS: WeakKeyDictionary[nn.Module, Fusion] = WeakKeyDictionary()
"""What became of the layers of models that were compiled here."""


class FusingBackend:
    """A backend of torch.compile that changes the graph first, and then hands it to another one."""

    def __init__(self, report: Fusion, backend: Any) -> None:
        self.report = report
        self.backend = backend

    def __call__(
        self,
        module: fx.GraphModule,
        inputs: list[Any],
        mode: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        fuse(module, self.report)
        if self.backend != "inductor":
            given = {key: value for key, value in (("mode", mode), ("options", options)) if value is not None}
            return torch._dynamo.lookup_backend(self.backend)(module, inputs, **given)
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        patches = {**({} if mode is None else list_mode_options(mode)), **(options or {})}
        return compile_fx(module, inputs, config_patches=patches or None)

    def reset(self) -> None:
        """Called by torch.compiler.reset: forget recorded CUDA graphs, as Inductor itself does."""
        if self.backend == "inductor":
            from torch._inductor.cudagraph_trees import reset_cudagraph_trees

            reset_cudagraph_trees()


def compile(model: nn.Module, *, fuse: bool = True, backend: Any = "inductor", **options: Any) -> Any:
    """torch.compile, where the statistics of layers come out of convolutions and their normalisation goes into the
    next one.

        fast = predbn.compile(predbn.adapt(model.half().cuda().to(memory_format=torch.channels_last), "auto"))
        with torch.inference_mode():
            fast(images)
        print(predbn.describe(fast))  # which layers are fused, and why others are not

    Fused are convolutions without bias, in channels_last, on a GPU and without gradients: 1×1 convolutions in half
    precision or bfloat16, and with cuDNN's package (pip install predbn[cudnn]) all of them in half precision, unless
    the strategy bounds the influence of examples. For each of them the fastest way is measured, and separate kernels
    are one of the ways. Everything else is compiled as torch.compile does it; on a CPU that is the whole model.

    fuse      False leaves everything to torch.compile
    backend   what compiles the graph when it is fused
    options   those of torch.compile: mode, options, dynamic, fullgraph
    """
    if not isinstance(model, nn.Module):
        raise AdaptationError(f"expected a torch.nn.Module, got {type(model).__name__}; compile the model itself")
    if not fuse:
        return torch.compile(model, backend=backend, **options)
    report = _REPORTS[unwrapped(model)] = Fusion()
    return torch.compile(model, backend=FusingBackend(report, backend), **options)


def fusion_of(model: nn.Module) -> Fusion | None:
    """What became of the layers of a model that `compile` has returned; None for any other model."""
    return _REPORTS.get(unwrapped(model)) if model is not unwrapped(model) else None
