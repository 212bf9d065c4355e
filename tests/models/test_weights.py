import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from predbn.models import ModelError, resnet20
from predbn.models.weights import compact, load_weights, read_weights, write_weights
from tests.chaos.flips import flip_bits

from .networks import scrambled


@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]),
)
def test_matrices_in_half_precision_vectors_in_single(shape, dtype):
    tensor = torch.randn(shape).mul(100).to(dtype)
    result = compact({"x": tensor})["x"]
    if not dtype.is_floating_point:
        assert result.dtype == dtype
        assert torch.equal(result, tensor)
        return
    assert result.dtype == (torch.float16 if len(shape) > 1 else torch.float32)
    assert result.is_contiguous()
    np.testing.assert_allclose(result.double().numpy(), tensor.double().numpy(), rtol=2**-11, atol=2**-25)


def test_a_matrix_that_half_precision_cannot_hold_stays_in_single():
    state = {"large": torch.full((2, 2), 7e4), "small": torch.full((2, 2), 6.5e4)}
    stored = compact(state)
    assert torch.equal(stored["large"], state["large"])
    assert stored["small"].dtype == torch.float16


def test_written_and_read(tmp_path):
    network = scrambled(resnet20()).to(memory_format=torch.channels_last)
    path = tmp_path / "new" / "folder" / "weights.safetensors"
    write_weights(path, network.state_dict(), {"seed": 3})
    state, card = read_weights(path)
    assert card == {"seed": 3}
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    expected = compact(network.state_dict())
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    other = resnet20()
    load_weights(other, {name: t for name, t in state.items() if "num_batches" not in name}, "here")
    assert all(t.dtype == torch.float32 for n, t in other.state_dict().items() if not n.endswith("tracked"))
    loaded = {n: t for n, t in other.state_dict().items() if "num_batches" not in n}
    assert all(torch.equal(t, expected[n].to(t.dtype)) for n, t in loaded.items())
    assert all(torch.equal(t, expected[n]) for n, t in load_file(path).items())  # safetensors itself


def test_files_of_other_programs(tmp_path):
    expected = {"a": torch.arange(3.0), "b": torch.eye(2)}
    save_file(expected, tmp_path / "theirs.safetensors", {"card": "an index card", "format": "pt"})
    torch.save({f"module.{name}": t for name, t in expected.items()}, tmp_path / "parallel.pt")
    torch.save({"state_dict": expected, "epoch": 3}, tmp_path / "lightning.pth")
    torch.save({"model": expected}, tmp_path / "model.pth")
    for path in sorted(tmp_path.iterdir()):
        state, card = read_weights(path)
        assert card == {}
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in expected)


class Dangerous:
    def __reduce__(self):
        return (pytest.fail, ("something was run",))


def test_files_that_hold_no_weights(tmp_path):
    with pytest.raises(ModelError, match=r"absent\.pt does not exist: name"):
        read_weights(tmp_path / "absent.pt")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.pth").write_text("hello")
    for name in ("empty.pt", "text.pth"):
        with pytest.raises(ModelError, match=f"{name} cannot be read as a file of tensors"):
            read_weights(tmp_path / name)
    for content in ([torch.ones(2)], {"x": 3}):
        torch.save(content, tmp_path / "list.pt")
        with pytest.raises(ModelError, match="does not contain a state dict"):
            read_weights(tmp_path / "list.pt")


def same_weights(first, second):
    return first[1] == second[1] and all(torch.equal(first[0][name], second[0][name]) for name in first[0])


@pytest.mark.parametrize("card", [None, {"seed": 3, "text": "µ" * 50}])
def test_no_flip_of_a_bit_goes_unnoticed(tmp_path, card):
    path = tmp_path / "w.safetensors"
    write_weights(path, {"x": torch.randn(10, 10), "y": torch.randn(7)}, card)
    flips = flip_bits(path, read_weights, bits=range(0, 8 * path.stat().st_size, 37), same=same_weights)
    assert flips.noticed == flips.tried


def test_refused_objects_are_named_and_nobody_is_told_to_load_them(tmp_path):
    torch.save(Dangerous(), tmp_path / "code.pt")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02cposix\nsystem\n.")
    for name, what in (("code.pt", r"\S*Fail"), ("old.pt", "posix.system")):
        with pytest.raises(ModelError, match=rf"{name} cannot be read .* \(it contains {what}, and only") as error:
            read_weights(tmp_path / name)
        assert "weights_only" not in str(error.value)
        assert "trust" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({0: torch.ones(2)}, "the key 0 is not a string\\): save"),
        ({("a",): torch.ones(2)}, "the key .* is not a string\\): save"),
        ({"x": torch.eye(3).to_sparse()}, "has the tensor 'x', which is sparse, .*: store dense tensors"),
        ({"x": torch.ones(2, dtype=torch.complex64)}, "has the tensor 'x'"),
        ({"x": torch.ones(2, device="meta")}, "has the tensor 'x'"),
    ],
)
def test_state_dicts_that_no_network_has(tmp_path, content, message):
    torch.save(content, tmp_path / "odd.pt")
    with pytest.raises(ModelError, match=rf"odd\.pt .*{message}"):
        read_weights(tmp_path / "odd.pt")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda s: s.pop("fc.bias"), r"it lacks fc\.bias\.$"),
        (lambda s: s.update(extra=torch.ones(1)), r"it has extra, which the network does not have\.$"),
        (lambda s: (s.pop("fc.bias"), s.update(a=s["conv1.weight"])), r"lacks fc\.bias, and 1 more names differ\.$"),
        (lambda s: s.update({"fc.bias": torch.ones(7)}), r"fc\.bias is \[7\] in the file and \[10\] in the network\.$"),
    ],
)
def test_weights_of_another_network(change, what):
    network = resnet20()
    before = {name: t.clone() for name, t in network.state_dict().items()}
    state = {name: t + 1 for name, t in before.items()}
    change(state)
    with pytest.raises(ModelError, match=f"^w does not fit the network: .*{what}"):
        load_weights(network, state, "w")
    assert all(torch.equal(t, before[name]) for name, t in network.state_dict().items())
