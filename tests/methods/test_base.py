"""Methods by name, and each of them under every strategy."""

import pytest
import torch

from predbn.methods import Ensemble, MethodError, Temperature, Vanilla, find_method, method_class


def test_the_names():
    assert find_method("vanilla") == Vanilla()
    assert find_method("temperature", value=2.0) == find_method("temperature(value=2.0)") == Temperature(2.0)
    for method in (Vanilla(), Temperature(1.25), Ensemble(), Ensemble(temperature=0.5)):
        assert find_method(str(method)) == find_method(method) == method


def test_the_class_of_a_method_says_what_it_needs():
    names = ("ensemble", "temperature", "vanilla")
    assert [method_class(name) for name in names] == [Ensemble, Temperature, Vanilla]
    assert [name for name in names if method_class(name).needs_fit] == ["temperature"]
    assert [name for name in names if method_class(name).takes_members] == ["ensemble"]
    with pytest.raises(MethodError, match="did you mean 'temperature'"):
        method_class("temprature")


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        (
            "vanila",
            {},
            r"unknown method 'vanila' \(did you mean 'vanilla'\?\); choose one of ensemble, temperature, vanilla",
        ),
        ("temperature", {}, "method 'temperature' needs its argument 'value'"),
        ("vanilla(x=1)", {}, "method 'vanilla' has no argument 'x'; it takes no arguments"),
        ("ensemble(", {}, "cannot read method 'ensemble\\('"),
        (Vanilla(), {"value": 1}, "beside the method object vanilla"),
        (3, {}, "a method is a name or a Method object, not int"),
    ],
)
def test_a_wrong_method_is_an_error(method, arguments, message):
    with pytest.raises(MethodError, match=message):
        find_method(method, **arguments)


@pytest.mark.parametrize("logits", [torch.zeros(3), torch.zeros(3, 2, dtype=torch.long), [torch.zeros(3, 2)] * 2])
def test_wrong_logits_are_an_error(logits):
    for method in (Vanilla(), Temperature(2.0)):
        with pytest.raises(MethodError):
            method.probabilities(logits)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_vanilla_is_the_softmax_in_float32_or_better(dtype):
    logits = torch.randn(40, 7).to(dtype)
    probabilities = Vanilla().probabilities([logits])
    assert probabilities.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(probabilities, logits.to(probabilities.dtype).softmax(1))
    assert torch.equal(probabilities, Vanilla().probabilities(logits))
