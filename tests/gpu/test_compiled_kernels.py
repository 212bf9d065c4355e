"""Every kernel can be compiled for a GPU that is not here, which needs Triton but no driver."""

from __future__ import annotations

import importlib

import pytest

POOL = f"f i i i {'f ' * 5}| i i i i i | MAX_SORTED=32"
NORMALISE = "half half half half f f i | i i i i i | ROWS=16 COLUMNS=256"
VARIANTS = [
    ("sums", "_sums", "half f i | i i i i | ROWS=32 COLUMNS=64 LAST FOLD=1 FIND_BAD"),
    ("sums", "_sums", "half f i | i i i i | ROWS=4 COLUMNS=256 LAST WIDE FOLD=4 FIND_BAD"),
    ("sums", "_sums", "f f f | i i i i | ROWS=512 COLUMNS=4 FOLD=1 WHOLE"),
    ("sums", "_moments", "f f | i i i | PIECES=64 COLUMNS=8"),
    ("pooling", "_pool", f"{POOL} COLUMNS=4 EXAMPLES=128 BOUNDED CORRECTED"),
    ("pooling", "_pool", f"{POOL} COLUMNS=1 EXAMPLES=1024 BOUNDED"),
    ("pooling", "_pool", f"{POOL} COLUMNS=32 EXAMPLES=8 BOUNDED CORRECTED ORDERED"),
    ("pooling", "_pool", f"{POOL} COLUMNS=4 EXAMPLES=64 ORDERED"),
    ("normalise", "_normalise", f"{NORMALISE} WEIGHT BIAS LAST"),
    ("normalise", "_normalise", f"{NORMALISE} WHOLE SEGMENTS"),
    ("launch", "_smallest_kernel", "f | |"),
]
"""Kernels with the dtypes of their tensors, their integers, and the constants that are not False."""


@pytest.mark.parametrize(("module", "name", "arguments"), VARIANTS)
def test_it_compiles(module, name, arguments):
    pytest.importorskip("triton", reason="Triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    function = getattr(importlib.import_module(f"predbn.gpu.{module}"), name).function
    tensors, integers, constants = (part.split() for part in arguments.split("|"))
    types = [{"half": "*fp16", "f": "*fp32", "i": "*i32"}[t] for t in tensors] + ["i32"] * len(integers)
    is_constant = [name in function.fn.__annotations__ for name in function.arg_names]
    floats = is_constant.count(False) - len(types)
    values = iter([*types, *["fp32"] * floats])
    signature = {n: "constexpr" if c else next(values) for n, c in zip(function.arg_names, is_constant, strict=True)}
    constexprs = {n: False for n, c in zip(function.arg_names, is_constant, strict=True) if c}
    chosen = {n: int(value) if value else True for n, _, value in (constant.partition("=") for constant in constants)}
    assert chosen.keys() <= constexprs.keys()
    constexprs |= chosen
    source, options = ASTSource(function, signature, constexprs), {"enable_fp_fusion": True}
    kernel = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert kernel.asm["cubin"]
