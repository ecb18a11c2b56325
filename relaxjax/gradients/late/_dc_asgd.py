"""DC-ASGD: gradients that arrive late are corrected for how the params have moved.

Source: Zheng et al. 2017 (delay-compensated asynchronous SGD), with the delays of a
table. A gradient g taken at x_u meets the params x; elementwise, to first order in
x - x_u, with the diagonal of g g^T for the Hessian:

    g + lambda g^2 (x - x_u)

What travels is a = g - lambda g^2 x_u and b = lambda g^2, so that several gradients
that arrive at once are compensated in sum, by a + b x.

Cost: 2 s gradients of this worker, s the largest delay. Nothing is sent.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._arrays import require_dtypes, require_same
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_traced, require_params
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import refuse_weight
from relaxjax._core.traced._marks import of_own_state
from relaxjax.gradients.late._bounded_staleness import staleness_table

_CALLER = "dc_asgd"


class DcAsgdState(NamedTuple):
    """State of `dc_asgd`.

    Attributes:
      step: as in `BoundedStalenessState`.
      arriving: the same, with a pair (a, b) for each gradient.
      layout: the tree that `init` saw.
    """

    step: Annotated[jax.Array, EQUAL]
    arriving: Annotated[tuple[Any, ...], MEAN]
    layout: Layout


def dc_asgd(
    axis_name: AxisName, delays: Any, *, strength: float = 0.04
) -> optax.GradientTransformationExtraArgs:
    """Lets gradients arrive late, as `bounded_staleness`, and compensates the delay.

    Put it before a reducer.

    Args:
      axis_name: the axis, or a tuple (outer, inner), whose workers are counted host by
        host.
      delays: whole numbers [period, workers], 0 or more: `[[0, 0, 0, 3]]` is a worker
        that is three steps late; `random_delays` draws a table.
      strength: lambda, 0 or more; 0 is `bounded_staleness`.

    Returns:
      A gradient transformation, for real floating leaves, whose `update` needs
      `params`.

    Raises:
      ValueError: a strength below 0; in `update` missing params; otherwise as in
        `bounded_staleness`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.dc_asgd("data", [[1]])
      >>> def late(g):
      ...     _, state = tx.update(g, tx.init(g), jnp.float32(0.5))
      ...     return tx.update(0 * g, state, jnp.float32(1.0))[0]
      >>> print(jax.vmap(late, axis_name="data")(jnp.array([2.0])))  # 2 + 0.04 4 0.5
      [2.08]
    """
    late = staleness_table(_CALLER, axis_name, delays)
    if not is_traced(strength) and not strength >= 0:
        raise ValueError(f"{_CALLER}: strength={strength} must be 0 (none) or more")

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, None)
        arriving = late.nothing_arriving((params, params))
        return DcAsgdState(jnp.zeros((), jnp.int32), arriving, layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        refuse_weight(weight, _CALLER)
        require_same(state.layout, updates, _CALLER)
        require_params(params, _CALLER, "which it compares")
        b = jax.tree.map(lambda g: strength * g * g, updates)
        a = jax.tree.map(lambda g, b, x: g - b * x, updates, b, params)
        (a, b), arriving = late.pass_on(state.arriving, (a, b), state.step)
        now = jax.tree.map(lambda a, b, x: a + b * x, a, b, params)
        out = optax.tree.cast_like(now, updates)
        step = (state.step + 1) % len(late.table)
        return out, DcAsgdState(step, arriving, state.layout)

    return of_own_state(_CALLER, init, update)
