"""What an `update` asks for beside gradients and params, so that it can be traced.

Some of optax's optimizers need a loss (`value`), a gradient (`grad`) or a function of
the params (`value_fn`, `obj_fn`, `grad_fn`), which only the train step has. To see
where updates come from, any will do:

    value_fn(x) = sum |x|^2,  grad = 2 x

An update is traced without them first. What it then names in its error is given to it,
until it is content, or names nothing that is known.

Cost: a trace for each argument that is asked for.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from relaxjax._core.foreign._switches import unswitched
from relaxjax._core.traced._marks import differentiated

T = TypeVar("T")
FAILURES = TypeError, ValueError, LookupError, AttributeError, NotImplementedError
"""What a trace may end in, where it lacks an argument or more."""


_GIVEN: ContextVar[Mapping[str, Any] | None] = ContextVar("_GIVEN", default=None)


@contextmanager
def giving(given: Mapping[str, Any] | None) -> Iterator[None]:
    """What is given to a public function, for traces that its own traces make.

    That function looks at a transformation, and heeds no switch for debugging.
    """
    token = _GIVEN.set(given)
    try:
        with unswitched():
            yield
    finally:
        _GIVEN.reset(token)


class ExtraArgs(NamedTuple):
    """Arguments of `update`.

    Attributes:
      arrays: pytrees of arrays, or of their shapes and dtypes, by name.
      functions: functions, by name.
    """

    arrays: dict[str, Any]
    functions: dict[str, Callable[..., Any]]

    @property
    def names(self) -> list[str]:
        """Names of all."""
        return sorted([*self.arrays, *self.functions])

    def update_of(self, tx: optax.GradientTransformation) -> Callable[..., Any]:
        """`tx.update` of (updates, state, params, arrays), with the functions.

        Updates are like params here; those of `optax.lookahead` are cut to gradients.
        """

        def update(updates: Any, state: Any, params: Any, arrays: Any) -> Any:
            grads = differentiated(updates)
            return tx.update(grads, state, params, **arrays, **self.functions)

        return update


def extra_args(given: Mapping[str, Any] | None) -> ExtraArgs:
    """Arguments that a caller gives: functions, and the shapes of arrays."""
    given = dict(given or {})
    functions = {k: v for k, v in given.items() if callable(v)}
    arrays = {k: v for k, v in given.items() if k not in functions}
    return ExtraArgs(jax.tree.map(_shape_of, arrays), functions)


def with_extra_args(
    trace: Callable[[ExtraArgs], T], params: Any, given: Mapping[str, Any] | None
) -> T:
    """The trace with what is given, and with what it turns out to need.

    Raises:
      TypeError, ValueError, LookupError, AttributeError, NotImplementedError: the last
        of the trace, where it names no argument that is known.
    """
    extra = extra_args(_GIVEN.get() if given is None else given)
    while True:
        try:
            return trace(extra)
        except FAILURES as error:
            text = str(error)
            more = {
                name: make(params)
                for name, make in _USUAL.items()
                if name not in extra.names and re.search(rf"\b{name}\b", text)
            }
            if not more:
                raise
        added = extra_args(more)
        extra = ExtraArgs(
            {**extra.arrays, **added.arrays}, {**extra.functions, **added.functions}
        )


def _shape_of(x: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(x)
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype)


def _value_fn(params: Any, *args: Any, **kwargs: Any) -> jax.Array:
    del args, kwargs
    squares = [jnp.sum(jnp.abs(x) ** 2) for x in jax.tree.leaves(params)]
    return jnp.sum(jnp.stack([x.astype(jnp.float32) for x in squares]))


def _grad_fn(params: Any, *args: Any, **kwargs: Any) -> Any:
    del args, kwargs
    return jax.grad(_value_fn)(params)


_USUAL: dict[str, Callable[[Any], Any]] = {
    "value": lambda params: jax.ShapeDtypeStruct((), jnp.float32),
    "grad": lambda params: params,
    "value_fn": lambda params: _value_fn,
    "obj_fn": lambda params: _value_fn,
    "grad_fn": lambda params: _grad_fn,
}
