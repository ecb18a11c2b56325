"""Bytes on the wire, read from the program that the compiler made.

This is the third witness, beside the traced count (`wire_bytes`) and each algorithm's
closed formula: what is left after the compiler has merged, dropped and widened. A
backend may widen a dtype (XLA on CPU sends bfloat16 as float32); then counts differ.
"""

from typing import Any

import jax

from relaxjax._core._phases import advance_phases, clocks_of, hosted
from relaxjax.programs import bytes_sent
from relaxjax.workers import DataParallelStep, Emulation


def compiled_wire_bytes(step: Any, *args: Any) -> int:
    """Bytes that the busiest device sends in one run of a compiled step.

    The step is compiled for the arguments, and not run. The metrics' mean is a program
    of its own (see `relaxjax.data_parallel`), and is not in the count.

    Args:
      step: a step of `relaxjax.data_parallel`, or any function of `jax.jit`.
      *args: its arguments, arrays or `jax.ShapeDtypeStruct`; for a step of
        `data_parallel` the state has its leading worker axis, and the batch is whole.

    Returns:
      Bytes, counted as in `relaxjax.wire_bytes`: an all-reduce of d elements over n
      devices as 2 (n - 1) ceil(d / n). A loop counts as often as it runs, a conditional
      as the branch that sends most. What a back end widens counts as it is compiled, as
      XLA's for CPUs does with sums of bfloat16.

    Raises:
      TypeError: `step` is not a jitted function.
      ValueError: the workers are emulated; a loop of unknown length has a collective.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.5))
      >>> def train_step(w, opt_state, batch):
      ...     loss, grad = jax.value_and_grad(lambda w: ((w - batch) ** 2).mean())(w)
      ...     updates, opt_state = tx.update(grad, opt_state, w)
      ...     return optax.apply_updates(w, updates), opt_state, {"loss": loss}
      >>> mesh = jax.sharding.Mesh(jax.devices()[:4], "data")
      >>> w, opt_state = relaxjax.init(tx, jnp.zeros(10), mesh)
      >>> step = relaxjax.data_parallel(train_step, mesh)
      >>> batch = jax.ShapeDtypeStruct((8, 10), jnp.float32)
      >>> relaxjax.compiled_wire_bytes(step, w, opt_state, batch)
      72
      >>> relaxjax.wire_bytes(tx, jnp.zeros(10), mesh)
      72
    """
    text = compiled_text("compiled_wire_bytes", step, *args)
    return int(bytes_sent(text).max())


def compiled_text(caller: str, step: Any, *args: Any) -> str:
    """The text of a step's optimized program; see `compiled_wire_bytes`."""
    if isinstance(step, DataParallelStep) and isinstance(step.mesh, Emulation):
        raise ValueError(
            f"{caller}: the step's workers are emulated on one device by "
            f"jax.vmap ({step.mesh.shape}), and such a program sends nothing. Pass "
            "data_parallel a mesh of devices, on CPU after "
            'jax.config.update("jax_num_cpu_devices", n); or count with '
            "relaxjax.wire_bytes, which needs none"
        )
    if not callable(getattr(step, "lower", None)):
        raise TypeError(
            f"{caller}: step={step!r} cannot be lowered: pass what "
            "relaxjax.data_parallel or jax.jit returned"
        )
    text = lowered(step, *args).compile().as_text()
    if text is None:
        raise ValueError(f"{caller}: this backend does not show its programs")
    return text


def lowered(step: Any, *args: Any) -> jax.stages.Lowered:
    """The program that a call with these arguments runs: of the current phase."""
    if isinstance(step, DataParallelStep):
        counts = jax.tree.leaves([clock.count for clock in clocks_of(args)])
        shapes = any(isinstance(x, jax.ShapeDtypeStruct) for x in counts)
        args = hosted(args) if shapes else advance_phases(args)
    return step.lower(*args)
