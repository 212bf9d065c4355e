"""Launches of kernels by the CUDA driver, with a driver that only writes down what it was asked for.

It is compiled against NVIDIA's own header, which comes with Triton, so that it reads memory as the real one does.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")

from predbn.norm.gpu import packed_launch  # noqa: E402
from predbn.norm.gpu.packed_launch import PackedLaunches, RecordedLaunch  # noqa: E402

HEADERS = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
DRIVER = """
#include <cuda.h>
#include <string.h>

static const size_t offsets[] = {0, 8, 16, 20, 24}, sizes[] = {8, 8, 4, 4, 8};
static CUfunction refused;
unsigned long long asked[16][12];
unsigned char arguments[16][32];
int count;

void refuse(unsigned long long function) { refused = (CUfunction)function; }

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    if (index >= 5) return CUDA_ERROR_INVALID_VALUE;
    *offset = offsets[index];
    *size = sizes[index];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **parameters, void **extra) {
    if (function == refused) return CUDA_ERROR_INVALID_CONTEXT;
    unsigned long long found[] = {
        c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
        (unsigned long long)c->hStream, (unsigned long long)c->attrs, c->numAttrs, (unsigned long long)function,
        (unsigned long long)extra};
    memcpy(asked[count], found, sizeof found);
    for (int i = 0; i < 5; i++) memcpy(arguments[count] + offsets[i], parameters[i], sizes[i]);
    count++;
    return CUDA_SUCCESS;
}
"""
SIGNATURE = {"x": "*fp16", "out": "*fp32", "n": "i32", "eps": "fp32", "ROWS": "constexpr"}


@pytest.fixture
def driver(tmp_path, monkeypatch):
    if shutil.which("gcc") is None or not (HEADERS / "cuda.h").exists():
        pytest.skip("the driver of this test needs gcc, and the header that comes with Triton")
    source, library = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(DRIVER)
    command = "gcc", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{HEADERS}", str(source), "-o", str(library)
    subprocess.run(command, check=True)
    found = packed_launch._with_types(ctypes.CDLL(str(library)))
    monkeypatch.setattr(packed_launch, "_driver", lambda: found)
    packed_launch._places_of_arguments.cache_clear()
    yield found
    packed_launch._places_of_arguments.cache_clear()


class Version:
    """A version of a kernel, which writes down what Triton would launch."""

    def __init__(self, function, warps, shared):
        metadata = SimpleNamespace(num_warps=warps, shared=shared, num_ctas=1)
        self.compiled = SimpleNamespace(function=function, metadata=metadata, src=SimpleNamespace(signature=SIGNATURE))
        self.launched = []

    def launch(self, grid, stream, arguments):
        self.launched.append((grid, stream, arguments))


def asked(driver):
    """Grid, block, shared memory, stream, function and arguments of each launch that the driver was asked for."""
    count = ctypes.c_int.in_dll(driver, "count").value
    rows = (ctypes.c_ulonglong * 12 * 16).in_dll(driver, "asked")
    memory = (ctypes.c_ubyte * 32 * 16).in_dll(driver, "arguments")
    found = []
    for row, values in zip(rows[:count], memory[:count], strict=True):
        assert (row[8], row[9], row[11]) == (0, 0, 0)
        found.append((*row[:8], row[10], struct.unpack("QQif", bytes(values)[:24])))
    return found


def two_launches():
    versions = Version(71, 4, 0), Version(72, 8, 4096)
    recorded = [
        RecordedLaunch(versions[0], (3, 2, 1), [1000, 2000], (5, 0.5, 16), [(0, 0, 0), (1, 1, 64)]),
        RecordedLaunch(versions[1], (7, 1, 1), [2000, 9000], (6, 0.25, 16), [(0, 1, 128)]),
    ]
    return versions, PackedLaunches(recorded)


def test_the_driver_gets_what_was_recorded_with_the_memory_and_the_stream_of_the_call(driver):
    versions, launches = two_launches()
    high = 1 << 40
    launches(11, [high, 500])
    launches(11, [high, 500])
    launches(12, [high + 16, 700])

    def pair(stream, first, second):
        return [
            (3, 2, 1, 128, 1, 1, 0, stream, 71, (first, second + 64, 5, 0.5)),
            (7, 1, 1, 256, 1, 1, 4096, stream, 72, (second + 128, 9000, 6, 0.25)),
        ]

    assert asked(driver) == pair(11, high, 500) + pair(11, high, 500) + pair(12, high + 16, 700)
    assert not versions[0].launched
    assert not versions[1].launched


def test_triton_launches_what_the_driver_refuses(driver):
    versions, launches = two_launches()
    driver.refuse(ctypes.c_ulonglong(72))
    launches(0, [100, 500])
    driver.refuse(ctypes.c_ulonglong(0))
    launches(0, [100, 500])
    assert not versions[0].launched
    assert versions[1].launched == [((7, 1, 1), 0, (628, 9000, 6, 0.25, 16))]
    assert [launch[8] for launch in asked(driver)] == [71, 71, 72]


def test_triton_launches_a_kernel_without_some_of_its_arguments(driver):
    versions, _ = two_launches()
    versions[1].compiled.src.signature = {"x": "*fp16"}
    recorded = [RecordedLaunch(v, (1, 1, 1), [1000, 2000], (5, 0.5, 16), [(0, 0, 0)]) for v in versions]
    PackedLaunches(recorded)(0, [100])
    assert [launch[8] for launch in asked(driver)] == [71]
    assert versions[1].launched == [((1, 1, 1), 0, (100, 2000, 5, 0.5, 16))]


def test_triton_launches_all_for_a_profiler(driver, monkeypatch):
    versions, launches = two_launches()
    monkeypatch.setattr(packed_launch, "has_hooks", lambda: True)
    launches(0, [100, 500])
    assert not asked(driver)
    assert [len(version.launched) for version in versions] == [1, 1]


def test_without_a_driver_triton_launches_all(monkeypatch):
    monkeypatch.setattr(packed_launch, "_driver", lambda: None)
    versions, launches = two_launches()
    launches(3, [100, 500])
    launches(3, [200, 600])
    assert versions[0].launched == [((3, 2, 1), 3, (p, q + 64, 5, 0.5, 16)) for p, q in ((100, 500), (200, 600))]
    assert [arguments[0] for _, _, arguments in versions[1].launched] == [628, 728]
