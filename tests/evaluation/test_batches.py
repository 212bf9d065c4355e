import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import ImageBatch
from predbn.evaluation.batches import Rebatcher, block_size


@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 20))
def test_the_block_size_does_not_change_the_batches(count, block, size):
    images = torch.arange(count * 3, dtype=torch.uint8).view(count, 3, 1, 1)
    whole = ImageBatch(images, torch.arange(count), torch.arange(count) + 100)
    rebatcher, found = Rebatcher(size), []
    for start in range(0, count, block):
        found += rebatcher.push(ImageBatch(*(part[start : start + block] for part in whole)))
    found += rebatcher.flush()
    assert [len(batch.labels) for batch in found] == [len(part) for part in whole.labels.split(size) if count]
    for place in range(3):
        if found:
            assert torch.equal(torch.cat([batch[place] for batch in found]), whole[place])


def test_blocks_are_multiples_of_the_largest_batch():
    assert block_size([100, 500], 3072, 1 << 22, 1) == 1000
    assert block_size([5000], 3072, 1 << 22, 1) == 5000
    assert block_size([100], 3 * 224 * 224, 1 << 22, 4) == 400
