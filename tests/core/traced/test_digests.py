"""Two programs that differ in the contents of an array alone are told apart."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from relaxjax._core.traced._digests import arrays_digest, arrays_of, bytes_of, text_of


def table(k: int) -> Any:
    return np.array([1, 2, k], np.float32)


def drawn(k: int) -> Callable[[Any], Any]:
    key = jax.random.key(k)
    return lambda x: x * jax.random.uniform(key, (3,))


def times(c: Any) -> Callable[[Any], Any]:
    return lambda x: x * c


def with_its_own_derivative(k: int) -> Callable[[Any], Any]:
    """Its text has the addresses of functions."""
    product = jax.custom_jvp(times(table(k)))
    product.defjvps(lambda tangent, out, x: tangent)
    return product


PROGRAMS: dict[str, Callable[[int], Any]] = {
    "by itself": lambda k: times(table(k)),
    "of JAX": lambda k: times(jnp.asarray(table(k))),
    "a key": drawn,
    "in a jit": lambda k: jax.jit(times(table(k))),
    "a key in a jit": lambda k: jax.jit(drawn(k)),
    "in a branch": lambda k: (
        lambda x: lax.cond(x[0] > 0, jax.jit(times(table(k))), lambda x: x, x)
    ),
    "in a loop": lambda k: (
        lambda x: lax.fori_loop(0, 3, lambda _, x: jax.jit(times(table(k)))(x), x)
    ),
    "with its own derivative": with_its_own_derivative,
}


@pytest.mark.parametrize("made", PROGRAMS.values(), ids=PROGRAMS)
def test_contents_of_arrays_count_wherever_they_are(made):
    programs = [jax.make_jaxpr(made(k))(jnp.ones(3)) for k in (3, 3, 4)]
    assert len(set(map(text_of, programs))) == 1
    one, again, other = (arrays_digest(arrays_of(p)) for p in programs)
    assert one == again
    assert one != other


def test_shapes_and_dtypes_count_with_the_bytes():
    x = np.zeros(4, np.float32)
    others = [x, x.reshape(2, 2), x.view(np.int32), jax.random.key(0)]
    assert len(set(map(bytes_of, others))) == 4
    pair = [np.zeros(1), np.ones(1)]
    assert arrays_digest(pair) != arrays_digest(pair[::-1])
