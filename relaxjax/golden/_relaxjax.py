"""The implementation of the golden vectors' rules by relaxjax itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax import compression
from relaxjax.golden import _gradient_rules as gradient_rules
from relaxjax.golden import _model_rules as model_rules

Inputs = dict[str, np.ndarray]
Config = dict[str, Any]
_RULES = {**gradient_rules.RULES, **model_rules.RULES}


def implementation(name: str, config: Config, inputs: Inputs) -> dict[str, Any]:
    """Applies a rule to a golden vector's inputs.

    Args:
      name: the rule's name.
      config: its parameters.
      inputs: float32 arrays by name.

    Returns:
      Arrays by name.

    Raises:
      NotImplementedError: relaxjax has no such rule.
    """
    if name in _CODES:
        x = jnp.asarray(inputs["x"])
        code = _CODES[name](config, x)
        return {"decoded": jax.jit(lambda x: compression.roundtrip(code, x))(x)}
    if name in _SMALL:
        code, bits = _SMALL[name](config)
        return _small(code, bits, jnp.asarray(inputs["x"]))
    if name in _RANDOM:
        return _moments(name, inputs["x"], **config)
    if name not in _RULES:
        raise NotImplementedError(name)
    return _RULES[name](config, **inputs)


def _cast(config: Config, x: jax.Array) -> compression.Compressor:
    dtype = jnp.dtype(config["dtype"])
    if dtype == jnp.float8_e4m3fn:  # relaxjax has only the form with scales
        raise NotImplementedError("cast to float8 without a scale")
    return compression.cast(dtype)


_CODES = {
    "cast": _cast,
    "scaled_float8": lambda c, x: compression.cast(jnp.float8_e4m3fn, **c),
    "quantize": lambda c, x: compression.quantize(**c),
    "min_max_uint8": lambda c, x: compression.min_max_uint8(),
    "sign": lambda c, x: compression.sign(**c),
    "top_k": lambda c, x: compression.top_k(c["k"] / len(x), block_size=None),
}

_SMALL = {
    "mx": lambda c: (compression.mx(**c), _BITS[c["element"]]),
    "nvfp4": lambda c: (compression.nvfp4(), 4),
}
_BITS = {"e4m3": 8, "e5m2": 8, "int8": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4}


def _small(code: compression.Compressor, bits: int, x: jax.Array) -> dict[str, Any]:
    """Codes and scales as they travel, and what is decoded from them."""

    @jax.jit
    def both(x: jax.Array) -> dict[str, Any]:
        payload = code.compress(x, None)
        return {
            "codes": compression.unpack(payload.codes, bits, x.size),
            "scale": payload.scale,
            "decoded": code.decompress(payload, x.size, None),
        }

    return both(x)


_RANDOM = {
    "stochastic_quantize": lambda x, **c: compression.quantize(
        **c, stochastic_rounding=True
    ),
    "qsgd": lambda x, **c: compression.qsgd(**c),
    "tern_grad": lambda x, **c: compression.tern_grad(**c),
    "natural": lambda x: compression.natural(),
    "random_k": lambda x, k: compression.random_k(k / len(x)),
}


def _moments(name: str, x: np.ndarray, draws: int, **config: Any) -> dict[str, Any]:
    """Mean and variance of the decoded values, over keys."""
    compressor, array = _RANDOM[name](x, **config), jnp.asarray(x)
    keys = jax.random.split(jax.random.key(0), draws)
    decoded = jax.vmap(lambda key: compression.roundtrip(compressor, array, key))(keys)
    return {"mean": decoded.mean(axis=0), "variance": decoded.var(axis=0)}
