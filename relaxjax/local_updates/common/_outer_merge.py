"""How the outer gradients of workers become one: a mean, or a mean of directions.

Source: Decoupled DiLoCo (Douillard et al. 2026), as second-hand notes give it. For D_i
of weight w_i, tensor by tensor, and phi(x) = x / |x|, phi(0) = 0:

    mean:  D = sum w D / sum w
    rda:   D = (sum w |D| / sum w) phi(sum w phi(D) / sum w)

Outer gradients of n workers are nearly orthogonal, so that their mean is some 1/sqrt(n)
as long as each of them. By `rda` the length is the mean length, whatever n is, and a
worker that went farther than the others does not decide the direction.

Law: equal D merge to that D; `rda` of c D is c times that of D (c >= 0); no D at all,
or directions that cancel, merge to 0. Those are shorter than 1e-6 here: what is left in
float32 is rounding, along which a whole step must not go. (The notes, with 1e-12, take
the mean there, for which a second exchange would be needed.)

    a rule of `relaxjax.merges`: D = rule(D_i, w_i)    (`all_reduce(op=rule)`)

The outer optimizer comes after it, so that its momentum keeps no wrong worker's step.

Cost: that of `all_reduce` for the params; `rda` also sends a float32 for each leaf, and
where workers have weights one for those, all in one message. A compressor sees the
directions.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size
from relaxjax._core._checks import require_transformation
from relaxjax._core.traced._flows import axes_met
from relaxjax._core.traced._marks import merging_by
from relaxjax.gradients import by_lengths
from relaxjax.merges import Rule, looks_at, of_length


def radial_directional(
    reducer: optax.GradientTransformationExtraArgs, axis_name: AxisName
) -> optax.GradientTransformationExtraArgs:
    """A reducer that averages lengths and directions; `reducer` averages directions.

    Its state is that of `reducer`.
    """

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        lengths = jax.tree.map(_length, updates)
        directions, state = reducer.update(
            jax.tree.map(_direction, updates, lengths), state, weight=weight
        )
        leaves, tree = jax.tree.flatten(lengths)
        if not leaves:
            return updates, state
        means = _mean_of_lengths(jnp.stack(leaves), weight, axis_name)
        lengths = tree.unflatten(list(means))
        return jax.tree.map(_of_length, directions, lengths), state

    return optax.GradientTransformationExtraArgs(reducer.init, update)


def merge_rule(caller: str, merge: str | Rule) -> Callable[..., Any]:
    """From a reducer and its axis to a reducer that merges by a rule, or ValueError."""
    if isinstance(merge, Rule):
        return _scaled_by(caller, merge)
    if merge not in _RULES:
        raise ValueError(
            f"{caller}: merge={merge!r} must be one of {', '.join(_RULES)}: 'mean' is "
            "DiLoCo's, and 'rda' keeps the length of outer gradients whatever the "
            "number of workers; or a rule of relaxjax.merges, such as merges.clipped()"
        )
    return _RULES[merge]


def as_merge(caller: str, all_reduce: Callable[..., Any], **arguments: Any) -> Any:
    """An `all_reduce` by a rule, whose refusals say what the user has written."""
    try:
        return all_reduce(**arguments)
    except ValueError as error:
        said = str(error).replace("all_reduce: op=", f"{caller}: merge=")
        raise ValueError(said) from None


def own_reducer(
    given: optax.GradientTransformation, arguments: Mapping[str, Any], spec: Any
) -> optax.GradientTransformationExtraArgs:
    """The user's reducer, in place of the `all_reduce` of these arguments.

    Raises:
      TypeError: it is no gradient transformation.
      ValueError: one of them is not its default in the class of `spec`; in `update`,
        the reducer brings nothing together over one of the axes, or takes no weight
        where there is one.
    """
    caller, axis_name = spec.caller, spec.axis_name
    require_transformation(caller, "reducer", given)
    for name, value in arguments.items():
        if name != "axis_name" and value != spec._field_defaults[name]:
            raise ValueError(
                f"{caller}: {name}={value!r} is of the all_reduce that reducer= "
                "replaces; give it to the reducer, and not here"
            )
    reducer, axes = optax.with_extra_args_support(given), frozenset(axes_of(axis_name))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        if weight is not None and reducer is not given:
            raise ValueError(
                f"{caller}: the update has weight=, which the reducer of reducer= does "
                "not take; give it one whose update has extra arguments"
            )
        extra = {} if weight is None else {"weight": weight}
        traced = jax.make_jaxpr(reducer.update)(updates, state, **extra)
        apart = sorted(axes - axes_met(traced.jaxpr.eqns, axes))
        if apart and jax.tree.leaves(updates) and axis_size(axis_name, caller) > 1:
            raise ValueError(
                f"{caller}: reducer= averages nothing over the axis {apart[0]!r}; it "
                "must be a relaxation that comes before an optimizer and has the axes "
                f"of {caller}, such as relaxjax.power_sgd({axis_name!r})"
            )
        return reducer.update(updates, state, **extra)

    return optax.GradientTransformationExtraArgs(reducer.init, update)


def _scaled_by(caller: str, rule: Rule) -> Callable[..., Any]:
    """The user's reducer, of contributions that a rule has scaled by their lengths."""
    if looks_at(rule) != "lengths":
        raise ValueError(
            f"{caller}: merge={rule!r} with reducer=, which brings contributions "
            "together before each can be looked at; leave reducer= out, or take "
            "merges.clipped(), which goes before it"
        )

    def scaled(
        reducer: optax.GradientTransformationExtraArgs, axis_name: AxisName
    ) -> optax.GradientTransformationExtraArgs:
        merged = by_lengths(
            rule, axis_name, lambda u, state, w: reducer.update(u, state, weight=w)
        )

        def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
            del params, extra_args
            return merging_by(rule.name)(merged)(updates, state, weight)

        return optax.GradientTransformationExtraArgs(reducer.init, update)

    return scaled


def _length(x: jax.Array) -> jax.Array:
    """float32[]: |x| of a leaf, in float32 or wider inside."""
    return jnp.linalg.norm(x.ravel()).astype(jnp.float32)


def _mean_of_lengths(lengths: jax.Array, weight: Any, axis_name: AxisName) -> Any:
    """float32[leaves], over the workers; where they have weights, these go along."""
    if weight is None:
        return lax.pmean(lengths, axis_name)
    w = jnp.asarray(weight, jnp.float32)
    both = jnp.append(jnp.where(w == 0, 0, w * lengths), w)
    *sums, total = lax.psum(both, axis_name)
    return jnp.stack(sums) / jnp.where(total == 0, 1, total)


def _direction(x: jax.Array, length: jax.Array) -> jax.Array:
    """phi(x): a NaN or an infinity stays to be seen."""
    return x / jnp.where(length == 0, 1, length).astype(x.dtype)


def _of_length(direction: jax.Array, length: jax.Array) -> jax.Array:
    """A vector of this length along the mean direction; 0 if directions cancel.

    NaN where the length is out of range, which takes all directions to 0.
    """
    return of_length(direction, jnp.linalg.norm(direction.ravel()), length)


_RULES: dict[str, Callable[..., Any]] = {
    "mean": lambda reducer, axis_name: reducer,
    "rda": radial_directional,
}
