import pickle
import warnings

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import sample
from predbn.evaluation.ray_payload import _array, _packed, _tensor, _unpacked


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.uint8, torch.int64]),
    data=st.data(),
)
def test_a_tensor_of_any_layout_comes_back_and_is_not_copied_on_the_way(shape, dtype, data):
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.arange(int(np.prod(shape))).reshape(shape).to(dtype).permute(order)
    array = _array(tensor)
    assert array.values.flags.c_contiguous
    assert np.shares_memory(array.values, tensor.numpy())
    back = _tensor(array)
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_images_are_read_where_they_lie_in_shared_memory():
    images = sample("test").take(50)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(_packed(images), protocol=5, buffer_callback=buffers.append)
    assert len(data) < 2_000
    shared = [bytes(buffer) for buffer in buffers]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = _unpacked(pickle.loads(data, buffers=shared))
    assert np.shares_memory(back.images.numpy(), np.frombuffer(shared[0], np.uint8))
    assert (back.name, back.classes, back.sums) == (images.name, images.classes, images.sums)
    batch = next(back.batches(10))
    batch.images.zero_()
    assert back.sums == images.sums
