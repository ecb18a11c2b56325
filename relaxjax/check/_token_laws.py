"""A compressor as the code of activations, which runs along their last dimension.

    a token alone     C(x)_t depends on x_t alone, and a NaN in it stays in it
    bytes             those that `relaxjax.activations.sent_bytes` states are sent

Cost: one compilation, three gathers of six tokens on two workers under `jax.vmap`.
"""

from collections.abc import Callable

import jax
import numpy as np

from relaxjax import activations
from relaxjax.check._verdict import Verdict, refuted
from relaxjax.compression import NO_FEEDBACK, Compressor

LAW = "tokens of activations"
_AXIS, _SHAPE = "model", (2, 3, 40)  # workers, tokens, width


def tokens(compressor: Compressor) -> Verdict:
    """Each token of a gathered activation is its own."""
    bare = compressor._replace(feedback=NO_FEEDBACK)

    def gather(x: jax.Array) -> jax.Array:
        return activations.all_gather(x, _AXIS, forward=bare, key=0)

    run = jax.jit(jax.vmap(gather, axis_name=_AXIS))
    x = np.random.default_rng(0).normal(size=_SHAPE).astype(np.float32)
    first = np.asarray(run(x))
    for factor in (np.float32(1000), np.float32(np.nan)):
        others = x.copy()
        others[0, 1] *= factor
        out = np.asarray(run(others))[0, 0]
        if out[[0, 2]].tobytes() != first[0, 0, [0, 2]].tobytes():
            found = f"a token depends on its neighbor, {factor:g} times as large"
            return _refuted(found, first[0, 0, 0], out[0])
        if np.isfinite(out[1]).all() and not np.isfinite(factor):
            return _refuted("a NaN is hidden", "not all finite", out[1])
    return _bytes(gather, bare)


def _bytes(gather: Callable[..., jax.Array], bare: Compressor) -> Verdict:
    part = jax.ShapeDtypeStruct(_SHAPE[1:], np.float32)
    stated = activations.sent_bytes("all_gather", part, 2, forward=bare).forward
    traced = activations.traced_bytes(gather, part, axes={_AXIS: 2})[_AXIS].forward
    if stated != traced:
        return _refuted("other bytes", f"{stated} stated", f"{traced} traced")
    return Verdict(LAW, True, f"each alone, {traced} bytes for {_SHAPE[1:]}")


def _refuted(found: str, expected: object, seen: object) -> Verdict:
    where = {"input": "gauss", "workers": 2, "tokens": 3, "width": 40, "seed": 0}
    return refuted(LAW, found, where, expected, seen)
