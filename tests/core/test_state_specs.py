"""Whose each array of a state is, and so over which axes devices have their own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from relaxjax._core.layouts._state_specs import OfLeaves, state_specs


def params() -> dict[str, Any]:
    """On each device of "model" both are float32[4, 2]."""
    specs = {"part": P("model"), "whole": P()}
    shapes = {"part": (8, 2), "whole": (4, 2)}
    return {k: jax.device_put(jnp.zeros(shapes[k]), specs[k]) for k in specs}


def mesh() -> Any:
    kinds = (AxisType.Explicit,) * 2
    return jax.make_mesh((2, 2), ("data", "model"), kinds, devices=jax.devices()[:4])


def kind(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct((1, *shape), dtype)


def test_shapes_that_coincide_and_shapes_of_factors():
    state = {
        "residual": {"part": kind(4, 2), "whole": kind(4, 2)},
        "factor": {"part": kind(1, 2, 1), "whole": kind(1, 2, 1)},
        "largest": {"part": kind(), "whole": kind()},
        "count": kind(dtype=np.int32),
        "like a part": kind(4, 2),
    }
    with jax.set_mesh(mesh()):
        found = state_specs(state, params(), ("data",))
    lone = P(("data",))
    assert found == {
        "residual": {
            "part": P(("data",), "model", None),
            "whole": P(("data",), None, None),
        },
        "factor": {"part": P(("data",), ("model",)), "whole": lone},
        "largest": {"part": P(("data", "model")), "whole": lone},
        "count": lone,
        "like a part": lone,
    }


def test_entries_of_leaves_and_masked_parts():
    hidden = optax.MaskedNode()
    state = (OfLeaves(({"e": kind(4, 2)}, ())), {"part": kind(3), "whole": hidden})
    with jax.set_mesh(mesh()):
        some = params() | {"whole": hidden}
        whole = state_specs(state, params(), ("data",))
        part = state_specs(state[1], some, ("data",))
    assert whole[0] == OfLeaves(({"e": P(("data",), "model", None)}, ()))
    assert whole[1] == part == {"part": P(("data",), ("model",)), "whole": hidden}


def test_of_a_bare_array_counters_and_keys_are_nobodys():
    state = {"e": kind(3), "count": kind(dtype=np.int32), "words": kind(2, dtype="u4")}
    with jax.set_mesh(mesh()):
        found = state_specs(state, params()["part"], ("data",))
    lone = P(("data",))
    assert found == {"e": P(("data",), ("model",)), "count": lone, "words": lone}


def test_a_tuple_of_leaves_keeps_its_paths():
    both = {"owed": (1, {"e": 2})}, {"owed": OfLeaves((1, {"e": 2}))}
    paths = [[path for path, _ in jax.tree.leaves_with_path(x)] for x in both]
    assert paths[0] == paths[1]
    again = jax.tree.map(lambda x: x, both[1])
    assert type(again["owed"]) is OfLeaves
