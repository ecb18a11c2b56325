"""The laws of compressors that need no statistics, each on a few arrays.

A payload is all that a receiver has; it has the same bits whenever x and the noise are
the same, adds up where it is linear, and hides nothing that is not finite.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax.check._samples import drawer, noise_of
from relaxjax.check._verdict import Verdict, farthest, refuted, spelled
from relaxjax.compression import Compressor


def _pair(size: int) -> tuple[jax.Array, jax.Array]:
    x = np.random.default_rng(1).normal(size=(2, size)).astype(np.float32)
    return jnp.asarray(x[0]), jnp.asarray(x[1])


def linear(compressor: Compressor, size: int = 64) -> Verdict:
    """Payloads may be added, where that is declared."""
    if not compressor.law.linear:
        return Verdict("linear", None, "not declared")
    x, y = _pair(size)
    noise = noise_of(compressor, 0)
    one, other = compressor.compress(x, noise), compressor.compress(y, noise)
    both = jax.tree.map(jnp.add, one, other)
    apart = [compressor.decompress(p, size, noise) for p in (one, other)]
    summed = np.asarray(compressor.decompress(both, size, noise))
    expected = np.asarray(apart[0] + apart[1])
    (worst,), off = farthest(summed, expected)
    if off > 1e-5 * np.abs(expected).max():
        where = {"input": "two gauss", "size": size, "seed": 0, "element": worst}
        seen = f"{spelled(summed[worst])} of the sum"
        found = "payloads do not add"
        return refuted("linear", found, where, expected[worst], seen)
    return Verdict("linear", True, "payloads add")


def deterministic(compressor: Compressor, size: int = 64) -> Verdict:
    """Traced twice, a payload has the same bits: only `noise` is drawn from."""
    law, x = "the same again", _pair(size)[0]
    noise = noise_of(compressor, 0)
    payloads = [
        jax.tree.map(np.asarray, jax.jit(lambda x: compressor.compress(x, noise))(x))
        for _ in range(2)
    ]
    pairs = zip(*map(jax.tree.leaves, payloads), strict=True)
    for number, (first, again) in enumerate(pairs):
        if first.tobytes() != again.tobytes():
            where = {"input": "gauss", "size": size, "seed": 0, "payload leaf": number}
            return refuted(law, "it draws from elsewhere", where, first, again)
    return Verdict(law, True, "equal payloads")


def from_payload(compressor: Compressor, size: int = 64) -> Verdict:
    """A receiver has neither x nor the sender's own noise."""
    law, x = "decoded from the payload", _pair(size)[0]
    noise = noise_of(compressor, 0)
    payload = jax.tree.map(np.asarray, jax.jit(compressor.compress)(x, noise))
    decode = jax.jit(lambda p, n: compressor.decompress(p, size, n))
    here = np.asarray(decode(payload, noise))
    if noise is not None:
        noise = noise._replace(own=noise.own + 1)
    there = np.asarray(decode(payload, noise))
    if not np.array_equal(here, there):
        worst = int(np.abs(here - there).argmax())
        where = {"input": "gauss", "size": size, "seed": 0, "element": worst}
        found = "it looks at noise.own, the sender's"
        return refuted(law, found, where, here[worst], there[worst])
    return Verdict(law, True, "by receivers as by the sender")


def visible(compressor: Compressor) -> Verdict:
    """A NaN or an infinity shows in what is decoded.

    Of the two sizes, the larger one is beyond the 4096 elements from which on XLA's CPU
    back end drops a NaN from `jnp.max`.
    """
    law, draw = "not finite stays visible", drawer(compressor, 1)
    for size, bad in itertools.product((100, 10_000), (np.nan, np.inf, -np.inf)):
        for element in (0, 17, size - 1):
            x = np.ones(size, np.float32)
            x[element] = bad
            if np.isfinite(out := draw(x)).all():
                where = {"input": f"ones and a {bad}", "size": size, "element": element}
                found = "the compressor hides it"
                return refuted(law, found, where, "not all finite", out)
    return Verdict(law, True, "NaN, inf and -inf")


def empty(compressor: Compressor) -> Verdict:
    """An array without elements passes."""
    law, out = "empty arrays", drawer(compressor, 1)(np.zeros(0, np.float32))
    if out.shape != (1, 0):
        seen = f"shape {out.shape[1:]}"
        return refuted(law, "another shape", {"size": 0}, "shape (0,)", seen)
    return Verdict(law, True, "pass")


def sign_of_zero(compressor: Compressor) -> Verdict:
    """Where there are only two values, +s and -s, a zero is +s."""
    law, draw = "sign of zero", drawer(compressor, 1)
    x = np.array([1, -2, 3, -4, 5, -6, 7, -8], np.float32)
    scales = np.abs(draw(x)[0])
    if compressor.random or np.ptp(scales) > 0 or scales[0] == 0:
        return Verdict(law, None, "it is not limited to +s and -s")
    x[2] = 0
    out = draw(x)[0]
    if out[2] != np.abs(out[0]):
        where = {"input": spelled(x), "size": x.size, "element": 2}
        found, expected = "a zero is not sent as plus", f"+{np.abs(out[0]):.6g}"
        return refuted(law, found, where, expected, out[2])
    return Verdict(law, True, "+, as the bit says")
