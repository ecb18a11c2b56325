"""Microscaling beside torchao's reference, block by block, to the bit.

torchao is optional: `pip install torch torchao` (0.18.0 was compared). Where it decides
otherwise, the difference is stated and held.
"""

import warnings
from importlib import import_module

import jax
import numpy as np
import pytest

from relaxjax import compression
from tests.compression.formats.test_mx import RULES, coded, spread

THEIRS, BLOCKS = "torchao.prototype.mx_formats", 2000
ELEMENTS = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e3m2": "fp6_e3m2",
    "e2m3": "fp6_e2m3",
    "e2m1": "float4_e2m1fn_x2",
}


@pytest.fixture(scope="module")
def torch():
    """PyTorch with torchao; pytree's warnings on import are its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(f"{THEIRS}.mx_tensor")
    return pytest.importorskip("torch")


def theirs(torch, element: str, scale: str, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Codes, one to a byte, and scales as bytes."""
    modes = import_module(f"{THEIRS}.config").ScaleCalculationMode
    name = ELEMENTS[element]
    kind = name if name.startswith("fp6") else getattr(torch, name)
    to_mx = import_module(f"{THEIRS}.mx_tensor").to_mx
    scales, codes = to_mx(torch.from_numpy(x).reshape(-1, 32), kind, 32, modes(scale))
    found = codes.view(torch.uint8).numpy().reshape(len(x) // 32, -1)
    if element == "e2m1":
        found = np.stack([found & 15, found >> 4], axis=-1)
    return found.reshape(-1), scales.view(torch.uint8).numpy().reshape(-1)


@pytest.mark.parametrize("scale", RULES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_torchao_has_the_same_codes_and_scales(torch, element, scale):
    x = spread(5, 32 * BLOCKS)
    x[32:64] = 0
    codes, scales, _ = coded(compression.mx(element, scale=scale), x)
    their_codes, their_scales = theirs(torch, element, scale, x)
    np.testing.assert_array_equal(scales, their_scales)
    np.testing.assert_array_equal(codes, their_codes)


@pytest.mark.parametrize("scale", RULES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_torchao_has_the_same_byte_for_a_nan_and_a_finite_scale_for_infinity(
    torch, scale, bad
):
    """Here an infinity makes its block NaN as well."""
    x = np.ones(64, np.float32)
    x[3] = bad
    _, scales, decoded = coded(compression.mx("e4m3", scale=scale), x)
    _, their_scales = theirs(torch, "e4m3", scale, x)
    assert scales[0] == 255
    assert (their_scales[0] == 255) == np.isnan(bad)
    assert scales[1] == their_scales[1]
    assert np.isnan(decoded[:32]).all()


def test_torchao_has_the_same_nvfp4(torch):
    module = import_module(f"{THEIRS}.nvfp4_tensor")
    x = np.random.default_rng(0).normal(size=16 * BLOCKS).astype(np.float32)
    payload = jax.jit(compression.nvfp4().compress)(x, None)
    t = torch.from_numpy(x).reshape(-1, 16)
    whole = module.per_tensor_amax_to_scale(t.abs().max())
    scales, codes = module.nvfp4_quantize(t, 16, whole)
    same = scales.view(torch.uint8).numpy().reshape(-1) == np.asarray(payload.scale)
    assert same.mean() > 0.999  # M / (448 x 6) is rounded there, and never here
    ours = np.asarray(payload.codes).reshape(-1, 8)[same]
    found = codes.view(torch.uint8).numpy().reshape(-1, 8)[same]
    assert (ours == found).mean() > 0.999
