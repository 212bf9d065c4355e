import pytest
import torch

from predbn.common.threads import each_on_one_core


@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_call_has_one_core_and_the_setting_stays(count):
    before = torch.get_num_threads()
    found = each_on_one_core(lambda k: (k, torch.get_num_threads()), range(count))
    assert found == [(k, 1) for k in range(count)]
    assert torch.get_num_threads() == before


def test_the_setting_stays_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        each_on_one_core(lambda k: 1 // k, [0])
    assert torch.get_num_threads() == before
