"""optax beside the golden vectors: of these rules it has outer optimizers.

python -m relaxjax.golden --implementation examples.golden.with_optax:implementation
"""

from typing import Any

import jax.numpy as jnp
import optax


def implementation(name: str, config: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """Arrays of a rule, by name."""
    if name != "nesterov_outer":
        raise NotImplementedError(name)
    tx = optax.sgd(config["learning_rate"], config["momentum"], nesterov=True)
    deltas = jnp.asarray(inputs["deltas"])
    params, seen = jnp.zeros_like(deltas[0]), []
    state = tx.init(params)
    for delta in deltas:
        updates, state = tx.update(delta, state, params)
        params = jnp.asarray(optax.apply_updates(params, updates))
        seen.append(params)
    return {"params": jnp.stack(seen)}
