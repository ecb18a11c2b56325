"""Programs in the axes of the workers, traced without a device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax

from relaxjax._core.layouts._sharding import as_on_devices
from relaxjax.workers._mesh import WorkerMesh


@contextmanager
def tracing(workers: WorkerMesh) -> Iterator[Callable[..., Any]]:
    """`jax.make_jaxpr`, of functions that know the axes as on devices."""
    env: Any = list(zip(workers.axis_name, workers.sizes, strict=True))
    with as_on_devices(workers.mesh.shape, workers.axis_name):
        yield partial(jax.make_jaxpr, axis_env=env)
