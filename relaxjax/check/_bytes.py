"""Bytes by three witnesses: what is stated, what is traced, what is compiled."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from relaxjax._core._phases import phase_starts
from relaxjax.check._samples import noise_of
from relaxjax.check._subjects import AXIS, Subject
from relaxjax.check._verdict import Verdict, refuted, verdict_of
from relaxjax.collectives import CODED_EXCHANGES
from relaxjax.compression import Compressor, payload_bytes
from relaxjax.decentralized import gossip
from relaxjax.gradients import all_reduce, as_codec
from relaxjax.programs import compiled_wire_bytes, wire_bytes
from relaxjax.workers import Emulation, data_parallel, init

SIZE = 4099  # elements; they do not divide among any workers
LAW = "bytes agree"


class Bytes(NamedTuple):
    """The bytes of a payload or a step; None where a witness is missing.

    Attributes:
      what: "a payload" or "a step", for people.
      size: number of elements.
      stated: bytes by a closed form.
      traced: bytes of the traced program.
      compiled: bytes of the compiled program.
    """

    what: str
    size: int
    stated: int | None
    traced: int
    compiled: int | None


def bytes_of(
    subject: Subject, mesh: Mesh | Emulation
) -> tuple[tuple[Bytes, ...], Verdict]:
    """Counts a subject's bytes, and says whether the witnesses agree.

    Args:
      subject: any subject.
      mesh: the workers; emulated ones compile no program that sends.
    """
    rows: list[Bytes] = []

    def check() -> Verdict:
        rows.extend(_rows(subject, mesh))
        return _agreement(rows, mesh.size)

    verdict = verdict_of(LAW, check)
    return tuple(rows), verdict


def _agreement(rows: list[Bytes], workers: int) -> Verdict:
    for row in rows:
        others = {"stated": row.stated, "compiled": row.compiled}
        for witness, count in others.items():
            if count is not None and count != row.traced:
                where = {"of": row.what, "size": row.size, "workers": workers}
                found, traced = f"{witness} is not traced", f"{row.traced} traced"
                return refuted(LAW, found, where, f"{count} {witness}", traced)
    last = rows[-1]
    missing = [x for x in ("stated", "compiled") if getattr(last, x) is None]
    counted = f"{last.traced} for {last.size} elements"
    return Verdict(LAW, True, counted + "".join(f"; none {x}" for x in missing))


def _rows(subject: Subject, mesh: Mesh | Emulation) -> list[Bytes]:
    if subject.kind == "compressor":
        return _of_compressor(subject, mesh)
    if subject.kind == "topology":
        graph = subject.graph(mesh.size)
        form = subject.stated or (lambda size, workers: graph.degree * 4 * size)
        tx = optax.chain(optax.sgd(0.1), gossip(AXIS, graph))
        return [
            _step("a step of gossip", tx, mesh, form(SIZE, mesh.size), graph.period)
        ]
    form = subject.stated
    stated = None if form is None else form(SIZE, mesh.size)
    return [_step("a step", subject.make(mesh.size, optax.sgd(0.1)), mesh, stated)]


def _of_compressor(subject: Subject, mesh: Mesh | Emulation) -> list[Bytes]:
    compressor = subject.compressor()
    payloads = [_payload(compressor, size, subject.stated) for size in (1, 7, 64, SIZE)]
    algorithm = compressor.algorithm
    tx = all_reduce(AXIS, compressor=compressor)
    keys = noise_of(compressor, 0)
    codec = as_codec(compressor, () if keys is None else (keys,), jnp.uint32(0))
    stated = CODED_EXCHANGES[algorithm].wire_bytes(SIZE, mesh.size, codec)
    return [*payloads, _step(f"a step of all_reduce@{algorithm}", tx, mesh, stated)]


def _payload(
    compressor: Compressor, size: int, form: Callable[..., int] | None
) -> Bytes:
    x = jax.ShapeDtypeStruct((size,), jnp.float32)
    traced = payload_bytes(compressor, x)
    noise = noise_of(compressor, 0)
    payload = jax.jit(compressor.compress)(jnp.zeros(size), noise)
    compiled = sum(leaf.nbytes for leaf in jax.tree.leaves(payload))
    return Bytes("a payload", size, form and form(size), traced, compiled)


def _step(
    what: str,
    tx: optax.GradientTransformation,
    mesh: Mesh | Emulation,
    stated: int | None,
    rounds: int = 1,
) -> Bytes:
    """The bytes of the step that sends most, among the first ones."""
    x = jnp.zeros(SIZE)
    compiled = _compiled(tx, x, mesh) if isinstance(mesh, Mesh) else None
    traced, seen, steps = 0, 0, max(16, rounds)
    while seen < steps:
        traced = max(traced, wire_bytes(tx, x, mesh, start=seen))
        seen += 1
        late = seen == steps and compiled is not None and traced < compiled
        steps = min(2 * steps, 256) if late and steps < 256 else steps
    return Bytes(what, SIZE, stated, traced, compiled)


def _compiled(tx: optax.GradientTransformation, x: jax.Array, mesh: Mesh) -> int:
    def step(params, state, batch):
        updates, state = tx.update(batch[0], state, params)
        return optax.apply_updates(params, updates), state, {}

    run = data_parallel(step, mesh)
    params, state = init(tx, x, mesh, reduced_in_step=True)
    batch = jax.ShapeDtypeStruct((mesh.size, x.size), x.dtype)
    return max(compiled_wire_bytes(run, params, s, batch) for s in phase_starts(state))
