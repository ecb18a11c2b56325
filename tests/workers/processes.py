"""Rows of a batch in every form that a process may give; run in several, by a test."""

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import hosts
from relaxjax._core.foreign import _together
from relaxjax.checkpoint import Checkpoints
from tests import helpers

ROWS, STEPS = 8, 3


def on_last_device(x: np.ndarray) -> jax.Array:
    return jax.device_put(x, jax.local_devices()[-1])


def over_own_devices(x: np.ndarray) -> jax.Array:
    mesh = Mesh(np.asarray(jax.local_devices()), ("own",))
    return jax.device_put(x, NamedSharding(mesh, P("own")))


def mixed(batch: Any) -> Any:
    return {"x": batch["x"], "y": jnp.asarray(batch["y"])}


FORMS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda batch: batch,
    "jnp": lambda batch: jax.tree.map(jnp.asarray, batch),
    "stacked": lambda batch: jax.tree.map(lambda x: jnp.stack([*x]), batch),
    "on a device": lambda batch: jax.tree.map(on_last_device, batch),
    "over own devices": lambda batch: jax.tree.map(over_own_devices, batch),
    "mixed": mixed,
}


def trained(mesh: Any, part: int, parts: int, form: Callable[[Any], Any]) -> Any:
    """The model after some steps on this process's rows, as bits."""
    tx = optax.chain(relaxjax.all_reduce("data", algorithm="ring"), optax.sgd(0.1))
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    state = relaxjax.init(tx, helpers.problem(), mesh)
    rows = slice(part * ROWS // parts, (part + 1) * ROWS // parts)
    for batch in helpers.batches(STEPS, ROWS):
        *state, _ = step(*state, form({k: x[rows] for k, x in batch.items()}))
    model = jax.tree.leaves(relaxjax.consensus(state[0]))
    return [np.asarray(x).tobytes().hex() for x in model]


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def warned(mesh: Mesh, rows: Any) -> int:
    """How many warnings of the same rows the first two steps give."""
    step = relaxjax.data_parallel(
        lambda total, b: (total, {"seen": b["x"].mean()}), mesh
    )
    total = relaxjax.to_workers(jnp.float32(0), mesh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            step(total, {"x": rows, "one": np.ones(len(rows))})
    assert all(w.filename == __file__ for w in caught)
    return sum("processes give the same rows" in str(w.message) for w in caught)


def everywhere(x: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """An array over all processes."""
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])


def seen(mesh: Mesh, rows: Any, see: Callable[[Any], jax.Array]) -> list[float]:
    """What each worker sees of its rows."""
    step = relaxjax.data_parallel(lambda _, rows: (see(rows), {}), mesh)
    each, _ = step(relaxjax.to_workers(jnp.float32(0), mesh), rows)
    gathered = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))
    return np.asarray(gathered(each)).tolist()


def means(mesh: Mesh, rows: Any) -> list[float]:
    return seen(mesh, rows, jnp.mean)


def over_model(process: int) -> dict[str, Any]:
    """Two workers, each of a device of either process, which must give the same."""
    devices = np.asarray(jax.devices()).reshape(2, 2).T
    mesh, rows = Mesh(devices, ("data", "model")), np.arange(8, dtype=np.float32)
    total = relaxjax.to_workers(np.float32(0), mesh, axis_name="data")

    def sees() -> Callable[..., Any]:
        step = relaxjax.data_parallel(taken, mesh, axis_name="data")
        return lambda rows, through=lambda f: f: float(
            relaxjax.consensus(through(lambda t, x: step(t, x)[0])(total, rows))
        )

    def taken(total: Any, rows: Any) -> tuple[Any, dict[str, Any]]:
        return total + jax.lax.pmean(rows.mean(), "data"), {}

    late, of_all = sees(), everywhere(rows, mesh, P("data"))
    means = [sees()(rows), sees()(jnp.asarray(rows)), sees()(of_all), late(rows)]
    found: dict[str, Any] = {"means": [*means, sees()(of_all, jax.jit)]}
    others = {"unlike": rows, "unlike in jnp": jnp.asarray(rows), "unlike later": rows}
    for name, given in others.items():
        call = late if name == "unlike later" else sees()
        found[name] = error_of(lambda call=call, given=given: call(given + process))
    return found


def first_words(mesh: Mesh, process: int) -> list[float]:
    """Typed keys as rows: a process's own two."""
    words = jnp.arange(4, dtype=jnp.uint32).reshape(2, 2) + 10 * process
    keys = jax.random.wrap_key_data(words)
    return seen(mesh, keys, lambda k: jax.random.key_data(k)[0, 0].astype(jnp.float32))


def checkpointed(folder: Path, mesh: Mesh, copies: Any) -> dict[str, Any]:
    """A state with an array of this process alone, and with one of NumPy's."""
    with Checkpoints(folder, mesh) as checkpoints:
        state = {"p": copies, "seen": jnp.zeros(4)}
        error = error_of(lambda: checkpoints.save(1, state))
        checkpoints.save(1, {**state, "seen": np.zeros(4)})
        like = {**state, "seen": np.ones(4)}
        step, back = checkpoints.restore(like)
        restored = [step, back["seen"].tolist()]
        checkpoints.save(2, {**state, "seen": np.zeros(4)})
        checkpoints.restore(like, step=1, forget_newer=True)
        checkpoints.save(2, {**state, "seen": np.full(4, 7.0)})
        steps = checkpoints.steps
    with Checkpoints(folder, mesh, read_only=True) as reader:
        step, back = reader.restore(like)
        again = [steps, reader.steps, step, back["seen"].tolist()]
    return {"own array": error, "restored": restored, "gone back": again}


def alone(mesh: Mesh, process: int) -> list[Any]:
    """Process 0 asks for a mean that process 1 does not; then both train, and ask."""
    x = relaxjax.to_workers({"w": np.float32(process)}, mesh)
    error = ""
    if process == 0:
        with mock.patch.object(_together, "PATIENCE", 1.0):
            error = error_of(lambda: relaxjax.consensus(x))
    step, total = adder(mesh)
    for _ in range(3):
        (total,) = step(total, np.ones(2, np.float32))[:1]
    return [error, relaxjax.spread(total), float(total.addressable_shards[0].data[0])]


def adder(mesh: Mesh) -> tuple[Any, Any]:
    """A step that adds the sum of all rows, and its state."""
    step = relaxjax.data_parallel(
        lambda x, b: (x + jax.lax.psum(b.sum(), "data"), {}), mesh, axis_name="data"
    )
    return step, relaxjax.to_workers(jnp.float32(0), mesh, axis_name="data")


def shapes(mesh: Mesh, process: int) -> list[Any]:
    """Later batches of other shapes: on both processes, then on process 1 alone."""
    step, total = adder(mesh)
    for rows in (2, 4, 2):
        (total,) = step(total, np.ones(rows, np.float32))[:1]
    errors: list[str] = []
    for other in (np.ones(4, np.float32), np.ones(2, np.int32)):
        if process == 1:
            with mock.patch.object(_together, "PATIENCE", 1.0):
                errors.append(error_of(partial(step, total, other)))
    return [errors, relaxjax.spread(total), float(total.addressable_shards[0].data[0])]


def repeated(process: int) -> float:
    """Process 1 gives a batch that it refuses itself, and then another one.

    Two workers of a device of either process: rows are compared in steps 1, 2, 4, ..
    Were the refused one counted, process 1 would compare in its third, alone.
    """
    devices = np.asarray(jax.devices()).reshape(2, 2).T
    step, total = adder(Mesh(devices, ("data", "model")))
    for number in range(1, 4):
        if process == 1 and number == 3:
            assert "do not divide" in error_of(partial(step, total, np.ones(3)))
        (total,) = step(total, np.ones(2, np.float32))[:1]
    return float(total.addressable_shards[0].data[0])


def unlike_workers(process: int) -> list[Any]:
    """Two workers on process 0 and one on process 1, with rows for each, or too many.

    Then each process trains on a mesh of its own, on rows as it likes.
    """
    step, start = adder(Mesh(np.asarray(jax.devices()[:3]), ("data",)))
    (total,) = step(start, np.arange(2.0 if process else 4.0))[:1]
    six = np.ones(6, np.float32)
    error = error_of(lambda: adder(Mesh(jax.devices()[:3], ("data",)))[0](start, six))
    own, start = adder(Mesh(np.asarray(jax.local_devices()), ("data",)))
    (mine,) = own(start, np.ones(2 + 2 * process, np.float32))[:1]
    ends = [float(x.addressable_shards[0].data[0]) for x in (total, mine)]
    return [error, relaxjax.spread(total), *ends]


def main(out: Path) -> None:
    here = hosts.join()
    mesh, mine = helpers.mesh_of(4), (here.process_id, len(here.members))
    results: dict[str, Any] = {
        name: trained(mesh, *mine, form) for name, form in FORMS.items()
    }
    rows = np.arange(8, dtype=np.float32)
    results["whole"] = means(mesh, everywhere(rows, mesh, P("data")))
    results["over model"] = over_model(mine[0])
    results["keys"] = first_words(mesh, mine[0])
    for name, few in (("numpy", np.ones(3)), ("jnp", jnp.ones(3))):
        results[f"three rows of {name}"] = error_of(lambda few=few: means(mesh, few))
    results["same rows"] = [
        warned(mesh, form(x))
        for x in (rows, rows + mine[0], np.ones(8, np.float32))
        for form in (np.asarray, jnp.asarray)
    ]
    results["same rows"].append(warned(mesh, everywhere(rows, mesh, P("data"))))
    pair = rows[:2] if mine[0] else everywhere(rows[:2], mesh, P())
    results["two kinds"] = error_of(lambda: means(mesh, pair))
    sharded = everywhere(rows.reshape(4, 2), mesh, P("data"))
    copies = relaxjax.to_workers({"w": sharded}, mesh)
    results["copies"] = np.asarray(relaxjax.consensus(copies)["w"]).tolist()
    unlike = np.ones(2 + mine[0])
    results["unlike"] = error_of(lambda: relaxjax.to_workers({"w": unlike}, mesh))
    results["alone"] = alone(mesh, mine[0])
    results["shapes"] = shapes(mesh, mine[0])
    results["repeated"] = repeated(mine[0])
    *results["unlike workers"], own = unlike_workers(mine[0])
    assert own == 2 + 2 * mine[0]
    results |= checkpointed(out / "checkpoints", mesh, copies)
    (out / f"{here.process_id}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
