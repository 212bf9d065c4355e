"""Triton kernels that make small networks faster on a GPU. Everything works without them, only slower.

The libraries are not tuned for the shapes of a ResNet-20: convolutions with 16 channels fill a quarter of cuDNN's
smallest tiles, and PyTorch's group normalisation does not keep channels_last. On an H200 the convolutions here take a
third to a half of cuDNN's time at 16 channels. `accelerate` is for training, `accelerate_prediction` for prediction.
docs/training.md shows what the kernels are worth, also compared with `torch.compile`.
"""

from .accelerate import accelerate, accelerate_prediction

__all__ = ["accelerate", "accelerate_prediction"]
