"""Every transformation that the installed optax has, and how to build one of each.

`ROWS` holds them by name, with what `update` has to be given; `NO_CELL` those that
have no row, each with its reason. What optax has and neither names is `unknown()`: a
new release of optax turns the test red until somebody has looked.

What is no optimizer by itself, such as a clip or a preconditioner, is followed by SGD.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import contrib

RATE = 0.05


class Row(NamedTuple):
    """One transformation.

    Attributes:
      make: builds it, for a tree of params.
      arguments: what `update` takes by name beside params.
      params: the params that it trains, made from a model's.
      model: the model in such params.
      tolerance: the largest `apart` of equal models: of a row whose steps multiply
        rounding errors, such as L-BFGS, more than of others.
    """

    make: Callable[[Any], Any]
    arguments: tuple[str, ...] = ()
    params: Callable[[Any], Any] = lambda model: model
    model: Callable[[Any], Any] = lambda params: params
    tolerance: float = 1e-4


def then_sgd(make: Callable[..., Any], *args: Any, **how: Any) -> Row:
    """A row of what is followed by plain SGD."""
    return Row(lambda params: optax.chain(make(*args, **how), optax.sgd(RATE)))


def alone(make: Callable[..., Any], *args: Any, **how: Any) -> Row:
    """A row of an optimizer."""
    return Row(lambda params: make(*args, **how))


def _matrices(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.ndim(x) > 1, tree)


def _muon(tree: Any) -> Any:
    return jax.tree.map(lambda _: contrib.MuonDimensionNumbers(), tree)


def _vectors(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.ndim(x) == 1, tree)


def _kinds(tree: Any) -> Any:
    return jax.tree.map(lambda x: "matrix" if jnp.ndim(x) > 1 else "vector", tree)


def _every_second(step: Any, **extra: Any) -> Any:
    del extra
    return step % 2 == 0


def _by_kind(combine: Callable[..., Any], labels: Any = _kinds) -> Any:
    parts = {"matrix": optax.adam(RATE), "vector": optax.sgd(RATE)}
    return combine(parts, labels)


def _halved(updates: Any, params: Any = None) -> Any:
    del params
    return jax.tree.map(lambda x: x / 2, updates)


def _falling_rate() -> Any:
    """SGD whose rate has a state: it falls by a tenth in each step."""
    rate = optax.schedules.WrappedSchedule(optax.exponential_decay(RATE, 1, 0.9))
    return optax.inject_stateful_hyperparams(optax.sgd)(learning_rate=rate)


_RATE_ONLY = [
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamaxw",
    "adamw",
    "adan",
    "amsgrad",
    "fromage",
    "lamb",
    "lars",
    "lion",
    "nadam",
    "nadamw",
    "novograd",
    "optimistic_adam_v2",
    "optimistic_gradient_descent",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
    "sign_sgd",
    "signum",
    "sm3",
    "yogi",
]
_CONTRIB_RATE_ONLY = [
    "acprop",
    "ademamix",
    "adopt",
    "cocob",
    "madgrad",
    "muon",
    "simplified_ademamix",
    "schedule_free_sgd",
    "schedule_free_adamw",
]
_BARE = [
    "centralize",
    "flatten",
    "identity",
    "keep_params_nonnegative",
    "normalize_by_update_norm",
    "scale_by_adadelta",
    "scale_by_adam",
    "scale_by_adamax",
    "scale_by_adan",
    "scale_by_amsgrad",
    "scale_by_belief",
    "scale_by_factored_rms",
    "scale_by_lion",
    "scale_by_novograd",
    "scale_by_optimistic_gradient",
    "scale_by_param_block_norm",
    "scale_by_param_block_rms",
    "scale_by_radam",
    "scale_by_rms",
    "scale_by_rss",
    "scale_by_sign",
    "scale_by_sm3",
    "scale_by_stddev",
    "scale_by_trust_ratio",
    "scale_by_yogi",
    "zero_nans",
]
_CONTRIB_BARE = [
    "normalize",
    "scale_by_acprop",
    "scale_by_ademamix",
    "scale_by_adopt",
    "scale_by_cocob",
    "scale_by_simplified_ademamix",
]

_LINE = ("value", "grad", "value_fn")


def _rows() -> dict[str, Row]:
    rows = {name: alone(getattr(optax, name), RATE) for name in _RATE_ONLY}
    rows |= {
        f"contrib.{k}": alone(getattr(contrib, k), RATE) for k in _CONTRIB_RATE_ONLY
    }
    bare = [k for k in _BARE if k not in _SPECIAL]
    rows |= {name: then_sgd(getattr(optax, name)) for name in bare}
    rows |= {f"contrib.{k}": then_sgd(getattr(contrib, k)) for k in _CONTRIB_BARE}
    return rows | _SPECIAL | _ASKING


_SPECIAL: dict[str, Row] = {
    "adamw, decay of matrices": alone(
        optax.adamw, RATE, weight_decay=0.1, mask=_matrices
    ),
    "adamw, decay of matrices, as a tree": Row(
        lambda params: optax.adamw(RATE, weight_decay=0.1, mask=_matrices(params))
    ),
    "partition, labels as a tree": Row(
        lambda params: _by_kind(optax.partition, _kinds(params))
    ),
    "adaptive_grad_clip": then_sgd(optax.adaptive_grad_clip, 0.01),
    "add_decayed_weights": then_sgd(optax.add_decayed_weights, 0.1),
    "add_noise": then_sgd(optax.add_noise, 0.1, 0.5, 0),
    "noisy_sgd": alone(optax.noisy_sgd, RATE, key=0),
    "optimistic_adam": alone(optax.optimistic_adam, RATE, optimism=0.1),
    "apply_every": Row(lambda _: optax.chain(optax.sgd(RATE), optax.apply_every(2))),
    "apply_if_finite": alone(optax.apply_if_finite, optax.adam(RATE), 2),
    "clip": then_sgd(optax.clip, 0.05),
    "clip_by_block_rms": then_sgd(optax.clip_by_block_rms, 0.05),
    "clip_by_global_norm": then_sgd(optax.clip_by_global_norm, 0.5),
    "chain": alone(optax.chain, optax.clip(1.0), optax.sgd(RATE)),
    "named_chain": alone(
        optax.named_chain, ("clip", optax.clip(1.0)), ("sgd", optax.sgd(RATE))
    ),
    "conditionally_mask": alone(
        optax.conditionally_mask, optax.adam(RATE), _every_second
    ),
    "conditionally_transform": alone(
        optax.conditionally_transform, optax.adam(RATE), _every_second
    ),
    "ema": then_sgd(optax.ema, 0.9),
    "flatten": alone(optax.flatten, optax.adam(RATE)),
    "freeze": Row(
        lambda params: optax.chain(optax.sgd(RATE), optax.freeze(_vectors(params)))
    ),
    "selective_transform": Row(
        lambda params: optax.selective_transform(
            optax.adam(RATE), freeze_mask=_vectors(params)
        )
    ),
    "inject_hyperparams": Row(
        lambda _: optax.inject_hyperparams(optax.adam)(
            learning_rate=optax.linear_schedule(RATE, 0.0, 10)
        )
    ),
    "inject_stateful_hyperparams": Row(lambda _: _falling_rate()),
    "keep_params_nonnegative": Row(
        lambda _: optax.chain(optax.sgd(RATE), optax.keep_params_nonnegative())
    ),
    "lookahead": Row(
        lambda _: optax.lookahead(optax.sgd(RATE), 2, 0.5),
        params=optax.LookaheadParams.init_synced,
        model=lambda params: params.fast,
    ),
    "masked": Row(
        lambda _: optax.chain(
            optax.masked(optax.scale(0.5), _matrices), optax.sgd(RATE)
        )
    ),
    "partition": alone(_by_kind, optax.partition),
    "multi_transform": alone(_by_kind, optax.multi_transform),
    "MultiSteps": Row(
        lambda _: optax.MultiSteps(optax.adam(RATE), 2).gradient_transformation()
    ),
    "measure_with_ema": then_sgd(
        optax.monitor, {"norm": optax.measure_with_ema(optax.tree.norm, 0.9)}
    ),
    "monitor": then_sgd(optax.monitor, {"norm": optax.tree.norm}),
    "snapshot": then_sgd(optax.snapshot, "norm", optax.tree.norm),
    "scale": then_sgd(optax.scale, 0.5),
    "scale_by_learning_rate": alone(optax.scale_by_learning_rate, RATE),
    "scale_by_rprop": then_sgd(optax.scale_by_rprop, RATE),
    "scale_by_schedule": then_sgd(
        optax.scale_by_schedule, optax.linear_schedule(1.0, 0.0, 10)
    ),
    "set_to_zero": alone(optax.set_to_zero),
    "stateless": then_sgd(optax.stateless, _halved),
    "stateless_with_tree_map": then_sgd(
        optax.stateless_with_tree_map, lambda g, p: g / 2
    ),
    "trace": then_sgd(optax.trace, 0.9),
    "with_extra_args_support": Row(
        lambda _: optax.with_extra_args_support(optax.adam(RATE))
    ),
    "scale_by_lbfgs": then_sgd(optax.scale_by_lbfgs)._replace(tolerance=0.02),
    # Their first steps, by optax's defaults, are below the rounding of the params.
    "scale_by_distance_over_gradients": then_sgd(
        optax.scale_by_distance_over_gradients, reps_rel=0.1
    ),
    "contrib.dog": alone(contrib.dog, 1.0, ("heuristic", 0.1)),
    "contrib.dowg": alone(contrib.dowg, 1.0, init_estim_sq_dist=0.01),
    "contrib.dadapt_adamw": alone(contrib.dadapt_adamw, estim_lr0=0.05),
    "contrib.prodigy": alone(contrib.prodigy, estim_lr0=0.05),
    # Of as many directions as the gradient has: more would be those of its rounding.
    "contrib.galore": alone(contrib.galore, RATE, rank=2),
    "contrib.scale_by_galore": then_sgd(contrib.scale_by_galore, rank=2),
    "contrib.scale_by_muon": Row(
        lambda _: optax.chain(
            optax.masked(
                contrib.scale_by_muon(weight_dimension_numbers=_muon), _matrices
            ),
            optax.sgd(RATE),
        )
    ),
    "contrib.scale_by_madgrad": Row(lambda _: contrib.scale_by_madgrad(RATE)),
    "contrib.mechanize": Row(lambda _: contrib.mechanize(optax.sgd(1.0), s_init=0.1)),
    "contrib.schedule_free": Row(
        lambda _: contrib.schedule_free(optax.sgd(RATE), RATE)
    ),
    "contrib.split_real_and_imaginary": alone(
        contrib.split_real_and_imaginary, optax.adam(RATE)
    ),
    "contrib.sam": Row(
        lambda _: contrib.sam(
            optax.sgd(RATE),
            optax.chain(contrib.normalize(), optax.sgd(RATE)),
            sync_period=2,
        )
    ),
}
_ASKING: dict[str, Row] = {
    "polyak_sgd": Row(lambda _: optax.polyak_sgd(max_learning_rate=1.0), ("value",)),
    "scale_by_polyak": Row(
        lambda _: optax.chain(optax.scale_by_polyak(), optax.sgd(0.5)), ("value",)
    ),
    "contrib.momo": Row(lambda _: contrib.momo(1.0), ("value",)),
    "contrib.momo_adam": Row(lambda _: contrib.momo_adam(0.1), ("value",)),
    "contrib.reduce_on_plateau": Row(
        lambda _: optax.chain(
            optax.sgd(RATE), contrib.reduce_on_plateau(patience=1, rtol=0.5)
        ),
        ("value",),
    ),
    "lbfgs": Row(lambda _: optax.lbfgs(), _LINE),
    "scale_by_zoom_linesearch": Row(
        lambda _: optax.chain(optax.scale(-1.0), optax.scale_by_zoom_linesearch(5)),
        _LINE,
    ),
    "scale_by_backtracking_linesearch": Row(
        lambda _: optax.chain(
            optax.scale(-1.0), optax.scale_by_backtracking_linesearch(5)
        ),
        _LINE,
    ),
    "contrib.sophia": Row(
        lambda _: contrib.sophia(RATE, update_interval=2), ("obj_fn",)
    ),
    "contrib.hutchinson_estimator_diag_hessian": Row(
        lambda _: optax.chain(
            contrib.hutchinson_estimator_diag_hessian(), optax.sgd(RATE)
        ),
        ("obj_fn",),
    ),
    "contrib.sam, opaque": Row(
        lambda _: contrib.sam(
            optax.sgd(RATE), optax.sgd(RATE), sync_period=2, opaque_mode=True
        ),
        ("grad_fn",),
    ),
}

ROWS = _rows()

_PER_EXAMPLE = "takes gradients [rows, ...] of examples: see the recipe for DP-SGD"
_NO_UPDATE = "is a function of a state or of updates, and has no update"
NO_CELL = {
    "contrib.differentially_private_aggregate": _PER_EXAMPLE,
    "contrib.dpsgd": _PER_EXAMPLE,
    "contrib.schedule_free_eval_params": _NO_UPDATE,
    "bias_correction": _NO_UPDATE,
    "matrix_inverse_pth_root": _NO_UPDATE,
    "sigmoid_binary_cross_entropy": _NO_UPDATE,
    "update_infinity_moment": _NO_UPDATE,
    "update_moment": _NO_UPDATE,
    "update_moment_per_elem_norm": _NO_UPDATE,
}
"""Transformations, or what may be one by its signature, without a row."""

_KNOWN = {row.split(",")[0] for row in ROWS} | set(NO_CELL)


def candidates() -> list[str]:
    """Public functions of the installed optax that may build a transformation."""
    found = []
    for module, prefix in ((optax, ""), (contrib, "contrib.")):
        for name, made in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(made):
                continue
            answer = inspect.signature(made).return_annotation
            if answer is inspect.Signature.empty or "GradientTransf" in str(answer):
                found.append(prefix + name)
    return sorted(found)


def unknown() -> list[str]:
    """What the installed optax has, and no row nor reason names."""
    return [name for name in candidates() if name not in _KNOWN]
