"""What two traced programs must have in common to compute the same.

Their text names operations, shapes, dtypes and scalars, and leaves out the contents of
arrays, whether constants of the program or literals in it: both count.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from relaxjax._core._jaxprs import Program, programs_of

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def text_of(program: Program) -> str:
    """A program without the addresses of what it refers to."""
    return without_addresses(str(program))


def without_addresses(text: str) -> str:
    """A text without places in memory, which differ between processes."""
    return _ADDRESS.sub("", text)


def text_digest(program: Program) -> str:
    """Sixteen digits for a program's text."""
    return hashlib.sha256(text_of(program).encode()).hexdigest()[:16]


def arrays_digest(arrays: Iterable[Any]) -> str:
    """Sixteen digits for the contents of arrays, in their order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(bytes_of(array))
    return digest.hexdigest()[:16]


def arrays_of(program: Program) -> Iterator[Any]:
    """Constants of a program and of those inside it, and literals that are arrays."""
    yield from program.consts
    for eqn in program.jaxpr.eqns:
        literals = (v.val for v in eqn.invars if isinstance(v, core.Literal))
        yield from (x for x in literals if np.ndim(x))
        for inner in programs_of(eqn.params):
            yield from arrays_of(inner)


def bytes_of(leaf: Any) -> bytes:
    """Shape, dtype and contents of an array, or of a typed key."""
    if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return str((array.shape, array.dtype)).encode() + array.tobytes()
