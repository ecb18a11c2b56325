"""Codes of 8 bits beside those of hivemind, bitsandbytes and torchao, on equal values.

What is lost is |x - decoded| / |x|, the median of five draws of 65 536 values; bits are
those of a message, with scales and code books.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression

torch = pytest.importorskip("torch")
bitsandbytes = pytest.importorskip("bitsandbytes.functional")
SIZE, SEEDS = 2**16, 5
VALUES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "normal": lambda rng: rng.normal(size=SIZE),
    "Laplace": lambda rng: rng.laplace(size=SIZE),
    "Student's t, 2": lambda rng: rng.standard_t(2, size=SIZE),
    "Cauchy": lambda rng: rng.standard_cauchy(size=SIZE),
    "all equal": lambda rng: np.full(SIZE, rng.normal()),
    "far from zero": lambda rng: 1000 + rng.normal(size=SIZE),
}
OURS = {
    "quantize(8)": compression.quantize(8),
    "quantize(8, block_size=4096)": compression.quantize(8, block_size=4096),
    "codebook(8)": compression.codebook(8),
    'cast("float8_e4m3fn")': compression.cast("float8_e4m3fn"),
    'mx("e4m3")': compression.mx("e4m3"),
    'mx("e5m2")': compression.mx("e5m2"),
    'mx("int8")': compression.mx("int8"),
    "natural()": compression.natural(),
}


@pytest.fixture(scope="module")
def theirs() -> dict[str, Callable[[Any], tuple[Any, float]]]:
    """From float32 values to those decoded, and the bits of a message."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hivemind = pytest.importorskip("hivemind.compression.quantization")
        affine = import_module("torchao.quantization.quant_primitives")

    def by_buckets(kind: str) -> Callable[[Any], tuple[Any, float]]:
        def code(x: Any) -> tuple[Any, float]:
            codes, book = getattr(hivemind, kind)().quantize(x.clone())
            return book[codes], 8 * (8 + book.nbytes + codes.nbytes)

        return code

    def by_blocks(size: int) -> Callable[[Any], tuple[Any, float]]:
        def code(x: Any) -> tuple[Any, float]:
            codes, state = bitsandbytes.quantize_blockwise(x, blocksize=size)
            decoded = bitsandbytes.dequantize_blockwise(codes, state)
            return decoded.numpy(), 8 * codes.numel() + 32 * state.absmax.numel()

        return code

    def int8(x: Any) -> tuple[Any, float]:
        block = (1, 128)
        symmetric = affine.MappingType.SYMMETRIC
        rows = x.reshape(-1, 128)
        how = affine.choose_qparams_affine(rows, symmetric, block, torch.int8)
        codes = affine.quantize_affine(rows, block, *how, torch.int8)
        out = affine.dequantize_affine(codes, block, *how, torch.int8)
        return out.reshape(-1).numpy(), 8 * codes.numel() + 32 * how[0].numel()

    return {
        "hivemind, uniform": by_buckets("Uniform8BitQuantization"),
        "hivemind, quantiles": by_buckets("Quantile8BitQuantization"),
        "bitsandbytes, blocks of 4096": by_blocks(4096),
        "bitsandbytes, blocks of 256": by_blocks(256),
        "torchao, int8 by 128": int8,
    }


def lost(x: np.ndarray, decoded: Any) -> float:
    return float(np.linalg.norm(x - np.float64(decoded)) / np.linalg.norm(x))


def of_ours(code: Any) -> Callable[[np.ndarray], tuple[Any, float]]:
    bits = 8 * compression.payload_bytes(code, jax.ShapeDtypeStruct((SIZE,), "float32"))
    back = jax.jit(lambda x: compression.roundtrip(code, x, 0))
    return lambda x: (np.asarray(back(jnp.asarray(x))), bits)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_is_lost_at_nearly_equal_bytes(theirs, measured):
    codes = {
        **{f"`{name}`": of_ours(code) for name, code in OURS.items()},
        **{
            name: lambda x, code=code: code(torch.from_numpy(x))
            for name, code in theirs.items()
        },
    }
    losses: dict[str, dict[str, float]] = {}
    for name, code in codes.items():
        bits, each = 0.0, dict[str, float]()
        for kind, draw in VALUES.items():
            found = []
            for seed in range(SEEDS):
                x = draw(np.random.default_rng(seed)).astype(np.float32)
                decoded, bits = code(x)
                found.append(lost(x, decoded))
            each[kind] = float(np.median(found))
        measured("codes", name, {"bits": bits / SIZE, **each})
        losses[name] = each
    by_kind = {kind: {name: x[kind] for name, x in losses.items()} for kind in VALUES}
    for kind in ("normal", "Laplace"):
        assert min(by_kind[kind].values()) == by_kind[kind]["`quantize(8)`"]
    for kind in ("Student's t, 2", "Cauchy"):
        cast = by_kind[kind]['`cast("float8_e4m3fn")`']
        assert cast < by_kind[kind]["`quantize(8)`"]
    ours = {k: x for k, x in by_kind["far from zero"].items() if k.startswith("`")}
    assert min(ours, key=ours.__getitem__) == "`codebook(8)`"
