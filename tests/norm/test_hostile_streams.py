"""Unusual names, stores that fail or are shared, interrupts, threads: no stream is lost, mixed up or half changed."""

from __future__ import annotations

import copy
import gc
import inspect
import linecache
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.norm import DirectoryStore
from predbn.norm.layer import adaptations
from predbn.norm.streams import api, blocks, lock, registry, stream

from .models import images, net
from .streams.stores import MemoryStore


def adapted(store: Any = None, **options: Any) -> nn.Module:
    return predbn.adapt(net(), "ema(momentum=0.5)", store=store, **options)


@torch.no_grad()
def predict(model: nn.Module, name: Any, step: int = 0) -> Tensor:
    with predbn.stream(model, name):
        return model(images(seed=step, shift=float(step)))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def path_of(folder: Path, name: str) -> Path:
    before = set(files(folder))
    store = DirectoryStore(folder)
    content = store.get(name)
    assert content is not None
    store.remove(name)
    (path,) = before - set(files(folder))
    store.put(name, content)
    return path


@pytest.mark.parametrize("name", [torch.tensor(3), np.int64(3), np.array(3), torch.tensor(3, dtype=torch.uint8)])
def test_a_number_in_a_tensor_or_array_names_the_stream_of_that_number(name):
    model, plain = adapted(), adapted()
    for step in range(3):
        assert torch.equal(predict(model, name, step), predict(plain, 3, step))
    assert set(predbn.state_dict(model)["streams"]) == {"default", 3}
    with predbn.streams(model, [name, 4, torch.tensor(3)]):
        model(images(3))
    assert set(predbn.state_dict(model)["streams"]) == {"default", 3, 4}
    assert predbn.stream_bytes(model, name) > 0
    predbn.reset(model, name)
    predbn.remove_stream(model, name)


@pytest.mark.parametrize("name", [torch.tensor([3]), torch.tensor(3.0), float("nan"), True, ("a", 1), None, b"a"])
def test_what_is_no_name_is_refused(name):
    """A tensor, or NaN, would be a new stream at each call; True would be stream 1."""
    model = adapted()
    for call in (lambda: predict(model, name), lambda: predbn.streams(model, ["a", name]).__enter__()):
        with pytest.raises(predbn.AdaptationError, match="stream ids must be str or int, got"):
            call()


def test_a_store_of_other_weights_is_refused_at_once(tmp_path):
    predict(adapted(tmp_path), "a")
    other = net()
    with torch.no_grad():
        other.conv1.weight[0, 0, 0, 0] += 1e-3
    with pytest.raises(predbn.AdaptationError, match=r"holds streams of another network: delete the folder"):
        predbn.adapt(other, "ema(momentum=0.5)", store=tmp_path)
    assert not predbn.describe(other) or all(row.strategy == "train" for row in predbn.describe(other))
    adapted(tmp_path)


def test_a_model_and_its_head_cannot_share_a_folder(tmp_path):
    model = net()
    predbn.adapt(model, "ema", layers=["bn1", "bn2"], store=tmp_path)
    with pytest.raises(predbn.AdaptationError, match="streams of another network"):
        predbn.adapt(model, "ema", layers=["bn3"], store=tmp_path)


def test_a_stream_of_another_model_in_any_store_is_refused():
    store = Slow()
    predict(adapted(store, max_streams=1), "a")
    model = adapted(store, max_streams=1)
    predict(model, "a")
    predbn.save_streams(model)
    other = net()
    torch.nn.init.zeros_(other.fc2.bias)
    predbn.adapt(other, "ema(momentum=0.5)", store=store)
    with pytest.raises(predbn.AdaptationError, match="or for another model"):
        predict(other, "a")


def test_a_file_of_another_stream_is_refused(tmp_path):
    model = adapted(tmp_path)
    for name in "ab":
        predict(model, name)
    predbn.save_streams(model)
    a, b = path_of(tmp_path, "a"), path_of(tmp_path, "b")
    b.write_bytes(a.read_bytes())
    with pytest.raises(predbn.AdaptationError, match=rf"{b.name} has the state of stream 'a', not of 'b'"):
        predict(adapted(tmp_path), "b")


def test_two_writers_of_one_stream(tmp_path, monkeypatch):
    """The second writes its file while the first is about to rename its own."""
    first, second = adapted(tmp_path), adapted(tmp_path)
    predict(first, "a", 1)
    predict(second, "a", 2)
    fsync, calls = os.fsync, []

    def fsync_while_another_writes(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            predbn.save_streams(second)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync_while_another_writes)
    predbn.save_streams(first)
    assert torch.equal(predict(adapted(tmp_path), "a", 3), predict(first, "a", 3))
    assert not list(tmp_path.glob("*.part"))


def test_what_a_killed_writer_has_left_is_removed(tmp_path):
    adapted(tmp_path)
    old, new = tmp_path / "x.safetensors.1.part", tmp_path / "x.safetensors.2.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    adapted(tmp_path)
    assert not old.exists()
    assert new.exists(), "another process may be writing it"


def test_the_default_stream_is_saved_and_continued(tmp_path):
    model, whole = adapted(tmp_path), adapted()
    with torch.no_grad():
        for step in range(2):
            assert torch.equal(model(images(seed=step)), whole(images(seed=step)))
        predbn.save_streams(model)
        predict(model, "default", 5)  # a block of the default stream
        predict(whole, "default", 5)
        predbn.save_streams(model)
        assert torch.equal(adapted(tmp_path)(images(seed=9)), whole(images(seed=9)))
    predbn.reset(model)
    assert not files(tmp_path)


class Wide(nn.Module):
    """Many layers with long names."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.add_module("x" * 200, nn.Sequential(*(nn.BatchNorm1d(2) for _ in range(layers))))

    def forward(self, x: Tensor) -> Tensor:
        (layers,) = self.children()
        return layers(x)


@pytest.mark.parametrize(("layers", "name"), [(450, "a"), (450, "a" * 70_000), (1, "predbn-sha256:" + "0" * 64)])
def test_damage_is_noticed_in_files_with_long_headers(tmp_path, layers, name):
    model = predbn.adapt(Wide(layers).eval(), "ema", store=tmp_path)
    with torch.no_grad(), predbn.stream(model, name):
        model(torch.randn(4, 2))
    predbn.save_streams(model)
    path = path_of(tmp_path, name)
    content = path.read_bytes()
    again = predbn.adapt(Wide(layers).eval(), "ema", store=tmp_path)
    for position in range(9, len(content), len(content) // 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(predbn.AdaptationError, match="is damaged"), predbn.stream(again, name):
            pass
    path.write_bytes(content)
    with predbn.stream(again, name):
        pass


@pytest.mark.parametrize("content", [b"", b"hello"])
@pytest.mark.parametrize("forget", [predbn.reset, predbn.remove_stream], ids=["reset", "remove"])
def test_a_damaged_file_does_not_block_reset(tmp_path, content, forget):
    model = adapted(tmp_path)
    for name in "ab":
        predict(model, name)
    predbn.save_streams(model)
    path_of(tmp_path, "a").write_bytes(content)
    other = adapted(tmp_path)
    forget(other, "a")
    (left,) = files(tmp_path)
    assert left == path_of(tmp_path, "b")
    assert torch.equal(predict(other, "a", 1), predict(adapted(), "a", 1))
    predbn.reset(other)
    assert not files(tmp_path)


class Slow(MemoryStore):
    """A store that waits until it is released when it writes certain streams."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.slow = names
        self.reached, self.released = threading.Event(), threading.Event()

    def put(self, name: Any, saved: Any) -> None:
        if name in self.slow:
            self.reached.set()
            assert self.released.wait(30)
        super().put(name, saved)


def while_it_is_written(store: Slow, model: nn.Module, work: Callable[[], Any]) -> Any:
    """Do something in another thread while `save_streams` hangs in the store; then let it end."""
    with ThreadPoolExecutor(2) as pool:
        saving = pool.submit(predbn.save_streams, model)
        assert store.reached.wait(10)
        doing = pool.submit(work)
        try:
            return doing.result(10)
        finally:
            store.released.set()
            saving.result(10)


def test_a_slow_disk_does_not_stop_predictions():
    """While one stream is written, it is used, others come from the store, and others leave memory."""
    store = Slow("a")
    model, whole = adapted(store, max_streams=2), adapted()
    for name in "cda":
        predict(model, name), predict(whole, name)
    assert "c" in store

    def work() -> None:
        for step, name in enumerate("acaeada"):
            assert torch.equal(predict(model, name, step), predict(whole, name, step))

    while_it_is_written(store, model, work)
    predbn.save_streams(model)
    again = adapted(store)
    for name in "acde":
        assert torch.equal(predict(again, name, 9), predict(whole, name, 9))


def test_an_old_copy_does_not_replace_a_newer_one():
    store = Slow("a")
    model, whole = adapted(store, max_streams=1), adapted()
    predict(model, "a"), predict(whole, "a")

    def use_again() -> None:
        predict(model, "a", 1), predict(whole, "a", 1)
        store.slow = ()

    while_it_is_written(store, model, use_again)
    predict(model, "b")  # now a leaves
    assert torch.equal(predict(model, "a", 2), predict(whole, "a", 2))


@pytest.mark.parametrize("forget", [predbn.reset, lambda model: predbn.reset(model, "a"), None], ids=["all", "a", "-"])
def test_a_stream_that_is_forgotten_while_it_is_written_does_not_come_back(forget):
    forget = forget or (lambda model: predbn.remove_stream(model, "a"))
    store = Slow("a")
    model = adapted(store)
    predict(model, "a")
    with ThreadPoolExecutor(2) as pool:
        saving = pool.submit(predbn.save_streams, model)
        assert store.reached.wait(10)
        forgetting = pool.submit(forget, model)
        store.released.set()
        saving.result(10), forgetting.result(10)
    assert "a" not in store
    assert torch.equal(predict(adapted(store), "a", 1), predict(adapted(), "a", 1))


class Spying(str):
    """A name that looks at the model whenever the table of streams is asked for it."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def __hash__(self) -> int:
        self.look()
        return super().__hash__()

    __eq__ = str.__eq__


def test_a_stream_that_is_being_opened_is_in_the_state_all_the_time():
    model, name, found = adapted(), Spying("a"), []
    predict(model, "a")

    def look() -> None:
        Spying.look = staticmethod(lambda: None)
        found.append("a" in predbn.state_dict(model)["streams"])
        Spying.look = staticmethod(look)

    Spying.look = staticmethod(look)
    try:
        with predbn.stream(model, name):
            pass
    finally:
        Spying.look = staticmethod(lambda: None)
    assert found
    assert all(found)


LINES, STEPS = {"line"}, {"line", "call", "return"}


class Interrupt:
    """Raises KeyboardInterrupt before the n-th line in some files, or where a function begins or ends.

    Not in lines of `with`, which are traced a second time before the block is left, nor before an assignment that
    begins a `finally`, nor where a generator yields; no signal is handled there.
    """

    def __init__(self, number: int, events: set[str], *files: str) -> None:
        self.left, self._events, self._files = number, events, files

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            return None
        line = linecache.getline(name, frame.f_lineno).lstrip()
        is_excluded = event == "line" and line.startswith(("with ", "opening.is_closed = True"))
        is_excluded |= event == "return" and bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
        if event in self._events and not is_excluded:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


def interrupted(number: int, work: Callable[[], Any], events: set[str], *files: str) -> bool:
    before = sys.gettrace()
    sys.settrace(Interrupt(number, events, *files))
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def small(store: Any = None, **options: Any) -> nn.Module:
    """Three streams, of which one has left memory if only two may stay."""
    model = predbn.adapt(Wide(1).eval(), "ema(momentum=0.5)", store=store, **options)
    for step, name in enumerate("abc"):
        with torch.no_grad(), predbn.stream(model, name):
            model(torch.arange(8.0).reshape(4, 2) + step)
    return model


@torch.no_grad()
def use_three(model: nn.Module) -> None:
    with predbn.streams(model, ["a", "b", "d"] * 2):
        model(torch.arange(12.0).reshape(6, 2) ** 2)


def states_of(model: nn.Module, names: str) -> list[dict[str, Any]]:
    states = []
    for name in names:
        with predbn.stream(model, name):
            states.append(predbn.state_dict(model)["streams"][name])
    return states


def test_an_interrupt_anywhere_leaves_every_stream_whole():
    """Each stream has the pass or not, no stream is lost, and no memory stays in use."""
    model = small()
    before = states_of(model, "abcd")
    use_three(model)
    after = states_of(model, "abcd")
    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        model = small(Slow(), max_streams=2)
        is_interrupted = interrupted(number, lambda model=model: use_three(model), LINES, registry.__file__)
        gc.collect(0)
        (adaptation,) = adaptations(model)
        for found, *wanted in zip(states_of(model, "abcd"), before, after, strict=True):
            assert any(same(found, state) for state in wanted), f"line {number}"
        assert len(adaptation.streams) <= 3, "two and the default stream"
        predbn.save_streams(model)
        predbn.reset(model)
    assert number > 50


def test_an_interrupt_anywhere_keeps_no_stream_locked():
    """Of a pass, or while a state is read: other threads go on, and the pass counts or does not."""
    model = small()
    (adaptation,) = adaptations(model)
    number, is_interrupted = 0, True

    def use() -> None:
        use_three(model)
        predbn.state_dict(model)

    while is_interrupted:
        number += 1
        is_interrupted = interrupted(number, use, STEPS, lock.__file__, stream.__file__)
        other = threading.Thread(target=use, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), f"step {number}"
    assert number > 100
    use()
    assert all(not stream.lock._held[1] for stream in adaptation.streams.values()), "frames hold the memory of a pass"


def test_an_interrupt_anywhere_leaves_no_stream_open():
    """What is predicted outside of all blocks then goes to the default stream."""
    model = small()
    (adaptation,) = adaptations(model)
    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        is_interrupted = interrupted(number, lambda: states_of(model, "ab"), STEPS, api.__file__, blocks.__file__)
        gc.collect(0)
        assert blocks.current_selection(adaptation).streams == (adaptation.default_stream,), f"step {number}"
        with predbn.stream(model, "a"):  # at its end nothing is left over
            pass
        assert not blocks._blocks_of_context.get()
    assert number > 50


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        a[layer].keys() == b[layer].keys() and all(torch.allclose(a[layer][key], b[layer][key]) for key in b[layer])
        for layer in b
    )


def malformed() -> dict[str, Callable[[dict[str, Any]], None]]:
    nan = float("nan")

    def layer(state: dict[str, Any]) -> dict[str, Any]:
        return state["streams"]["a"]["bn2"]

    return {
        "a value that is not finite": lambda state: layer(state)["mean"].__setitem__(0, nan),
        "an infinite variance": lambda state: layer(state)["var"].fill_(float("inf")),
        "a negative variance": lambda state: layer(state)["var"].fill_(-1.0),
        "no variance": lambda state: layer(state).pop("var"),
        "a variance that is none": lambda state: layer(state).update(var=None),
        "an entry without a name": lambda state: layer(state).update({None: torch.zeros(8)}),
        "integers": lambda state: layer(state).update(mean=torch.zeros(8, dtype=torch.long)),
        "a matrix": lambda state: layer(state).update(mean=torch.zeros(8, 8)),
        "a strategy that is a list": lambda state: state["strategies"].update(bn2=[]),
        "a list": lambda state: layer(state).update(mean=[0.0] * 8),
        "a number": lambda state: layer(state).update(mean=0.5),
        "a text": lambda state: layer(state).update(passes="many"),
        "a count in a tensor": lambda state: layer(state).update(passes=torch.tensor(3)),
        "complex numbers": lambda state: layer(state).update(mean=torch.zeros(8, dtype=torch.complex64)),
        "a sparse tensor": lambda state: layer(state).update(mean=torch.zeros(8).to_sparse()),
        "a tensor without values": lambda state: layer(state).update(mean=torch.zeros(8, device="meta")),
        "other channels": lambda state: layer(state).update(mean=torch.zeros(3)),
        "no channels": lambda state: layer(state).update(mean=torch.tensor(0.0)),
        "an unknown layer": lambda state: state["streams"]["a"].update(bn9={"mean": torch.zeros(8)}),
        "a layer that is no dictionary": lambda state: state["streams"]["a"].update(bn2=None),
        "a stream that is no dictionary": lambda state: state["streams"].update(a=[1]),
        "a name that is none": lambda state: state["streams"].update({(1, 2): {}}),
        "streams in a list": lambda state: state.update(streams=[]),
        "a calibration that is not finite": lambda state: state["calibration"]["bn3"]["var"].fill_(nan),
        "a calibration without a mean": lambda state: state["calibration"]["bn3"].update(mean=None),
        "a calibration that is no dictionary": lambda state: state["calibration"].update(bn3=7),
        "a calibration with a number that is not finite": lambda state: state["calibration"]["bn3"].update(offset=nan),
        "a calibration with other classes": lambda state: state["calibration"]["bn3"].update(class_means=None),
        "a past without counts": lambda state: layer(state).pop("counts"),
        "a batch of no size": lambda state: layer(state).pop("new_size"),
        "classes without their errors": lambda state: layer(state).pop("class_errors"),
        "another number of classes": lambda state: layer(state).update(expected=torch.zeros(3)),
        "a calibration without entries": lambda state: state["calibration"].update(bn3={}),
    }


@pytest.mark.parametrize("damage", malformed())
def test_a_malformed_state_changes_nothing(damage):
    model = predbn.adapt(predbn.calibrate(net(), [images(32, seed=9)]), "auto_stream")
    predict(model, "a"), predict(model, "a", 3)
    state = copy.deepcopy(predbn.state_dict(model))
    malformed()[damage](state)
    predict(model, "a", 1)
    before = copy.deepcopy(predbn.state_dict(model))
    with pytest.raises(predbn.AdaptationError):
        predbn.load_state_dict(model, state)
    after = predbn.state_dict(model)
    assert after["streams"].keys() == before["streams"].keys()
    for name, layers in before["streams"].items():
        assert same(after["streams"][name], layers)
    for name, values in before["calibration"].items():
        assert torch.equal(after["calibration"][name]["var"], values["var"])
    predict(model, "a", 2)


def test_a_stored_state_that_is_not_finite_is_refused():
    store = Slow()
    model = adapted(store)
    predict(model, "a")
    predbn.save_streams(model)
    for vector in store["a"]["state"]["vectors"].values():
        vector[0] = float("nan")
    with pytest.raises(predbn.AdaptationError, match="stream 'a' was stored with values that are not finite"):
        predict(adapted(store), "a")
