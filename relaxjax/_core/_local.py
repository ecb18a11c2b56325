"""Leaves that are meant to differ between workers, such as a worker's own experts."""

from typing import Annotated, Any, NamedTuple

import optax

from relaxjax._core._merge_rules import refuse
from relaxjax._core._tree import Layout, layout_of

_OWN = refuse(
    "its leaves are each worker's own (relaxjax.local), and none can be made for new "
    "workers. Resume on the old number of workers, or leave those leaves and their "
    "state out of what is restored and begin them anew"
)


class LocalState(NamedTuple):
    """State of `local`; it never changes.

    Attributes:
      layout: layout of the leaves that are local.
    """

    layout: Annotated[Layout, _OWN]


def local() -> optax.GradientTransformationExtraArgs:
    """Marks leaves that no worker shares; for `optax.partition` beside a reducer.

    The updates pass unchanged. `relaxjax.init` refuses leaves that a reducer seems to
    have forgotten; leaves that pass through here are local on purpose.

    Returns:
      A gradient transformation that is the identity.

    Example:
      >>> import optax, relaxjax
      >>> tx = optax.chain(
      ...     optax.partition(
      ...         {"shared": relaxjax.all_reduce("data"), "own": relaxjax.local()},
      ...         {"trunk": "shared", "expert": "own"},
      ...     ),
      ...     optax.sgd(0.1),
      ... )
    """

    def init(params: optax.Params) -> Any:
        return LocalState(layout_of(params))

    def update(updates, state, params=None, **extra_args):
        del params, extra_args
        return updates, state

    return optax.GradientTransformationExtraArgs(init, update)
