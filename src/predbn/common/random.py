"""Counter-based random numbers: they belong to an image, not to a run.

A sequential generator gives an image whatever numbers come next, so that its corruption depends on the batch size, the
order and the number of workers. Here every value is a pure function

    value = f(seed, name, severity, image index, number of the draw, position of the element)

computed in 32-bit integers that wrap around, and is therefore the same on every device.

Each image and draw gets a 64-bit key (k0, k1) from splitmix64. Element p of the draw is then

    x = p·0x9E3779B9 + k0
    x = (x ^ x>>16)·0x21F0AAAD
    x = (x ^ x>>15) + k1
    x = x·0xD35A2D97
    x = x ^ x>>15

This is Wellons' 32-bit finaliser with the constants of TheIronBorn (bias 0.107, close to the noise floor of the test
that measures it). One half of the key is added before the first multiplication, the other half between the two. For a
fixed key the function is a bijection of the position, so that no word appears twice within one draw of an image.
"""

from __future__ import annotations

import hashlib
import math
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_WEYL = 0x9E3779B9
_FIRST = 0x21F0AAAD
_SECOND = 0xD35A2D97
_GOLDEN = 0x9E3779B97F4A7C15


def _signed(word: int) -> int:
    """The 32-bit word as the two's complement integer that torch's int32 holds."""
    return word - (1 << 32) if word >= 1 << 31 else word


@lru_cache(maxsize=64)
def _positions(count: int, device: torch.device) -> Tensor:
    """p·0x9E3779B9 for p = 0 … count − 1. Cached, because all batches of one image size need the same positions."""
    words = np.arange(count, dtype=np.uint32) * np.uint32(_WEYL)
    return torch.from_numpy(words.view(np.int32)).to(device)


def _splitmix64(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of splitmix64: a bijection of 64 bits in which every bit depends on every other."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


def derive_seed(seed: int, *parts: object) -> int:
    """A 64-bit seed for one purpose, named by `parts`: the BLAKE2b digest of the seed and the parts."""
    text = "\x1f".join([str(int(seed)), *map(str, parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Draws:
    """The random numbers of one corruption at one severity, for N images given by their index in the data set.

    Each call of a method is one draw and returns a tensor [N, *shape] on `device`. The n-th draw of an image does not
    depend on the batch that the image is in, provided that the corruption makes its draws in a fixed order.
    """

    def __init__(self, seed: int, name: str, severity: int, index: Tensor, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._purpose = (seed, name, severity)
        self._index = index
        self._draw_number = 0

    def __len__(self) -> int:
        return len(self._index)

    @cached_property
    def _keys(self) -> npt.NDArray[np.uint64]:
        """One key per image, made at the first draw because half of the corruptions never draw."""
        images = self._index.detach().cpu().numpy().astype(np.int64).view(np.uint64)
        return _splitmix64(images * np.uint64(_GOLDEN) + np.uint64(derive_seed(*self._purpose)))

    def bits(self, *shape: int) -> Tensor:
        """Uniform 32-bit words, as int32 [N, *shape]."""
        self._draw_number += 1
        keys = _splitmix64(self._keys + np.uint64(self._draw_number * _GOLDEN % 2**64))
        key_halves = torch.from_numpy(keys.view(np.int32).reshape(-1, 2)).to(self.device)
        x = _positions(math.prod(shape), self.device) + key_halves[:, :1]
        t = torch.empty_like(x)
        torch.bitwise_right_shift(x, 16, out=t)
        x.bitwise_xor_(t.bitwise_and_(0xFFFF)).mul_(_FIRST)
        torch.bitwise_right_shift(x, 15, out=t)
        x.bitwise_xor_(t.bitwise_and_(0x1FFFF)).add_(key_halves[:, 1:]).mul_(_signed(_SECOND))
        torch.bitwise_right_shift(x, 15, out=t)
        x.bitwise_xor_(t.bitwise_and_(0x1FFFF))
        return x.view(-1, *shape)

    def bits16(self, *shape: int) -> Tensor:
        """Uniform 16-bit words, as int16 [N, *shape]; each 32-bit word gives two of them."""
        count = math.prod(shape)
        words = self.bits((count + 1) // 2).view(torch.int16)
        return words[:, :count].reshape(-1, *shape)

    def uniform(self, *shape: int) -> Tensor:
        """float32 in [0, 1): the upper 24 bits of a word divided by 2²⁴. The same bits on every device."""
        return self.bits(*shape).bitwise_right_shift_(8).bitwise_and_(0xFFFFFF).to(torch.float32).mul_(2**-24)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 in [low, high): ⌊word·(high − low)/2³²⌋ + low, with a bias of at most (high − low)/2³²."""
        words = self.bits(*shape).to(torch.int64).bitwise_and_(0xFFFFFFFF)
        return words.mul_(high - low).bitwise_right_shift_(32).add_(low)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32 by the Box-Muller transform, √(−2 ln u)·(cos θ, sin θ), with |z| up to 6.6.

        The radius uses 31 bits of a word. float32 represents them with full relative precision near zero, and small u
        are the tail of the distribution.
        """
        count = math.prod(shape)
        pairs = (count + 1) // 2
        words = self.bits(2, pairs)
        radius = words[:, 0].bitwise_and(0x7FFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-31)
        radius = radius.log_().mul_(-2.0).sqrt_()
        angle = words[:, 1].to(torch.float32).mul_(math.pi * 2.0**-31)
        values = torch.empty(len(self), 2 * pairs, dtype=torch.float32, device=self.device)
        torch.mul(angle.cos(), radius, out=values[:, :pairs])
        torch.mul(angle.sin_(), radius, out=values[:, pairs:])
        return values[:, :count].reshape(-1, *shape)
