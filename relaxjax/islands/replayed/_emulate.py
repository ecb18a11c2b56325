"""All islands of a log in one program: `decoupled_diloco` with the log's own tables.

Another way to the same models: emulated workers along one axis, in lock step, with the
outer step of the library instead of the leader's. The common model after each merge is
compared with the one that was published. They differ by rounding, as batched programs
do, and that grows with the steps.

Cost: the ticks of `relaxjax.islands.replayed._tables`, times the number of processes.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.one._island import seed_of
from relaxjax.islands.one._past import published
from relaxjax.islands.replayed._tables import Tables, tables
from relaxjax.local_updates import decoupled_diloco

_AXIS = "islands"


class Program(NamedTuple):
    """What a script trains, in parts.

    Attributes:
      loss: `loss(params, batch)`, the mean over the batch.
      inner: the optimizer of each island.
      params: as the script gives them to `join`.
      batches: `batches(seed)` yields a process's batches, in order; `seed` is what
        `Island.seed` was.
    """

    loss: Callable[[Any, Any], Any]
    inner: optax.GradientTransformation
    params: Any
    batches: Callable[[int], Iterator[Any]]


class Emulated(NamedTuple):
    """One merge, emulated.

    Attributes:
      version: the merge.
      difference: largest absolute difference of the fragment to what was published.
      scale: largest absolute value of the fragment.
    """

    version: int
    difference: float
    scale: float


def emulate(
    store: Store, program: Program, merges: int | None = None
) -> Iterator[Emulated]:
    """Trains all islands of a log in one program, and compares each merge.

    Args:
      store: the run, which has kept its versions.
      program: what it trains.
      merges: number of merges, from the first; None for all.

    Raises:
      DamagedFile: a line of the log, or a version.
      ValueError: a log that no table describes, see
        `relaxjax.islands.replayed._tables`; a run whose contributions travelled in
        codes.
    """
    run, newest = Agreed.read(store), log.newest(store)
    if code := run.settings.compressor:
        raise ValueError(
            f"islands: contributions of the run in {store.place} travelled as {code}, "
            "each by itself, and workers of one program exchange codes otherwise; "
            "`relaxjax islands replay DIR SCRIPT` runs the islands' own steps again"
        )
    merges = newest if merges is None else min(merges, newest)
    found = tables(store, merges)
    tick, state = _begin(run, program, found)
    seeds = [seed_of(run.settings.seed, member) for member in found.members]
    streams = [program.batches(seed) for seed in seeds]
    batches = [next(stream) for stream in streams]
    for number, steps in enumerate(found.steps, 1):
        for i, step in enumerate(steps):
            if step > 1:
                batches[i] = next(streams[i])
        state = tick(state, jax.tree.map(lambda *x: np.stack(x), *batches))
        version, late = divmod(number - found.overlap, found.every)
        if late == 0 and version > 0:
            yield _compared(store, run, version, state[1])


def _begin(run: Agreed, program: Program, found: Tables) -> tuple[Any, Any]:
    """A tick of all islands, and how they begin."""
    settings, n = run.settings, len(found.members)
    tx = decoupled_diloco(
        program.inner,
        _AXIS,
        sync_every=found.every * settings.fragments,
        fragments=settings.fragments,
        overlap=found.overlap,
        present=found.present,
        adopts=found.adopts,
        tokens=found.tokens,
        merge=settings.merge,
        outer=settings.outer(),
    )

    def one(state: Any, batch: Any) -> Any:
        params, opt_state = state
        grads = jax.grad(program.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    start = program.params, tx.init(program.params)
    state = jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), start)
    return jax.jit(jax.vmap(one, axis_name=_AXIS)), state


def _compared(store: Store, run: Agreed, version: int, opt_state: Any) -> Emulated:
    """The fragment that was merged, as worker 0 has it, and as it was published."""
    number = run.fragment_of(version)
    memory = optax.tree.get(opt_state, "kept")[number]
    leaves = [np.asarray(x[0]) for x in jax.tree.leaves(memory.anchor)]
    was = published(store, run, version, number).anchor
    far = [
        float(np.abs(np.float64(x) - np.float64(y)).max(initial=0))
        for x, y in zip(leaves, was.values(), strict=True)
    ]
    scale = [float(np.abs(np.float64(x)).max(initial=0)) for x in was.values()]
    return Emulated(version, max(far), max(scale))
