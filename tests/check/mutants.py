"""Files as users write them, each a seeded mistake beside its unmutated twin."""

from typing import NamedTuple

from relaxjax.check.skeletons import compressor, relaxation, topology


class Mutant(NamedTuple):
    """A twin's source, what becomes of one piece of it, and the law that falls."""

    source: str
    line: str
    becomes: str
    law: str

    @property
    def mutated(self) -> str:
        assert self.source.count(self.line) == 1, self.line
        return self.source.replace(self.line, self.becomes)


def text_of(module) -> str:
    with open(module.__file__) as file:
        return file.read()


UNBIASED = """
import jax.numpy as jnp
from relaxjax._core._random import uniform
from relaxjax.compression import Compressor, Law, over_largest


def rounded() -> Compressor:
    def compress(x, noise):
        unit, most = over_largest(x)
        drawn = jnp.floor(100 * unit + uniform(noise.own, x.size))
        return drawn.astype(jnp.int8), most[0] / 100

    def decompress(payload, size, noise):
        codes, scale = payload
        return scale * codes

    law = Law(omega=lambda d: d / 4e4)
    return Compressor("rounded", compress, decompress, law, random=True)


BYTES = {"rounded": lambda size: size + 4}
"""

SIGNS = """
from typing import NamedTuple

import jax
import jax.numpy as jnp
from relaxjax.compression import Compressor, Feedback, Law, over_largest


class Waits(NamedTuple):
    residual: jax.Array


def signs() -> Compressor:
    def compress(x, noise):
        unit, most = over_largest(x)
        bits = jnp.packbits(x >= 0)
        return bits, jnp.sum(jnp.abs(unit)) / max(1, x.size) * most[0]

    def decompress(payload, size, noise):
        bits, scale = payload
        return scale * (jnp.unpackbits(bits, count=size).astype(jnp.float32) * 2 - 1)

    def before(g, state):
        return g + state.residual

    def after(g, c, mean, state):
        p = before(g, state)
        return mean, Waits(p - c)

    feedback = Feedback("waits", lambda x: Waits(jnp.zeros_like(x)), before, after)
    law = Law(delta=lambda d: 1 / max(1, d))
    return Compressor("signs", compress, decompress, law, feedback=feedback)
"""

TWINS = {
    "rounded": UNBIASED,
    "signs": SIGNS,
    "compressor skeleton": text_of(compressor),
    "topology skeleton": text_of(topology),
    "relaxation skeleton": text_of(relaxation),
}
_LOST, _BYTES, _SIGN = "nothing is lost", "bytes agree", "sign of zero"
MUTANTS = {
    "biased scale": Mutant(
        UNBIASED, "return scale * codes", "return 1.01 * scale * codes", "unbiased"
    ),
    "a seed beside the noise": Mutant(
        UNBIASED,
        "uniform(noise.own, x.size)",
        "__import__('numpy').random.rand(x.size)",
        "the same again",
    ),
    "less variance than there is": Mutant(UNBIASED, "d / 4e4", "d / 4e5", "unbiased"),
    "feedback that forgets": Mutant(SIGNS, "Waits(p - c)", "Waits(0 * p)", _LOST),
    "feedback from the sender's sign(0) = 0": Mutant(
        SIGNS,
        "Waits(p - c)",
        "Waits(p - jnp.max(jnp.abs(c)) * jnp.sign(p))",
        _LOST,
    ),
    "a zero is sent as minus": Mutant(SIGNS, "x >= 0", "x > 0", _SIGN),
    "no contraction": Mutant(
        text_of(compressor), "jnp.round(", "jnp.ceil(", "contraction"
    ),
    "a hidden infinity": Mutant(
        text_of(compressor),
        "over_largest(x)",
        "over_largest(jnp.nan_to_num(x, posinf=1.0, neginf=-1.0))",
        "not finite stays visible",
    ),
    "a maximum that drops a NaN": Mutant(
        text_of(compressor),
        "unit, scale = over_largest(x)",
        "unit, scale = x, jnp.max(jnp.abs(x), initial=0.0)[None]",
        "not finite stays visible",
    ),
    "understated bytes of two-bit codes": Mutant(
        text_of(compressor), "-(-size // 4) + 4", "-(-size // 4)", _BYTES
    ),
    "rows that do not sum to 1": Mutant(
        text_of(topology),
        "np.roll(same, hops, axis=1)) / 2",
        "np.roll(same, hops, axis=1)) / 2.1",
        "rows sum to 1",
    ),
    "two halves that never meet": Mutant(
        text_of(topology), "for hops in (1, 2)", "for hops in (2, 2)", "all hear of all"
    ),
    "understated bytes of a graph": Mutant(
        text_of(topology), "4 * size}", "2 * size}", _BYTES
    ),
    "lost residual": Mutant(
        text_of(relaxation),
        "jax.tree.map(jnp.subtract, waiting, sent)",
        "jax.tree.map(jnp.zeros_like, waiting)",
        _LOST,
    ),
    "residual of the sender's sign(0)": Mutant(
        text_of(relaxation),
        "decoded[lax.axis_index(axis_name)]",
        "scale * jnp.sign(p)",
        _LOST,
    ),
    "a worker's own mean": Mutant(
        text_of(relaxation),
        "return jnp.mean(decoded, axis=0),",
        "return jnp.mean(decoded, axis=0) + 0 * p + 1e-6 * p,",
        "the same updates",
    ),
    "a scale that one worker alone feels": Mutant(
        text_of(relaxation), "return p, p ", "return 2 * p, p ", "one worker alone"
    ),
}
