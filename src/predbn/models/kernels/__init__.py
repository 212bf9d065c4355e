"""GPU kernels that make small networks faster. Everything works without them, only slower.

A ResNet-20 is made of shapes that the libraries were not tuned for: convolutions of 16 channels fill a quarter of
cuDNN's smallest tiles, and PyTorch's group normalisation leaves channels_last. On an H200 the convolutions here take
a third to a half of cuDNN's time at 16 channels. `accelerate` puts them where they fit in training,
`accelerate_prediction` where they pay in prediction.
"""

from .accelerate import accelerate, accelerate_prediction

__all__ = ["accelerate", "accelerate_prediction"]
