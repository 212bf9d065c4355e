import pickle
import warnings

import numpy as np

from predbn.data import sample
from predbn.evaluation.ray_payload import _packed, _unpacked


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
