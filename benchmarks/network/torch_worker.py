"""PyTorch's DDP and FSDP2 as a system of the network bench, over gloo.

Run as `python -m benchmarks.network.torch_worker FILE PROCESS PROCESSES ADDRESS`.

DDP's hooks: none (float32), 16 bits, and PowerSGD with error feedback, warm started.
Gradients travel in one bucket. "local_sgd" averages models by `PeriodicModelAverager`.
PyTorch is for this benchmark alone.
"""

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.network import worker
from benchmarks.network.methods import HOOK_START
from benchmarks.network.problem import HEADS, Problem
from benchmarks.network.torch_twin import twin

_BUCKET_MB = 1000  # one for everything
_PATIENCE = timedelta(minutes=30)


def begin(method: dict[str, Any], problem: Problem) -> worker.Session:
    """The training of "alone", "fully_shard", "local_sgd", or DDP's with a hook."""
    torch = import_module("torch")
    module = twin(problem.params, heads=HEADS)
    apart = method["name"] in ("alone", "local_sgd")
    model = module if apart else _parallel(module, method)
    average = _averager(method)
    adam = torch.optim.Adam(model.parameters(), lr=method["rate"], fused=True)

    def advance(rows: np.ndarray) -> float:
        adam.zero_grad(set_to_none=True)
        loss = model(torch.from_numpy(rows))
        loss.backward()
        adam.step()
        average(list(model.parameters()))
        return loss.item()

    def judged(windows: np.ndarray) -> float:
        with torch.no_grad():
            return module(torch.from_numpy(windows)).item()

    return worker.Session(advance, judged)


def _averager(method: dict[str, Any]) -> Callable[..., Any]:
    """What averages params once in some steps, or nothing."""
    if method["name"] != "local_sgd":
        return lambda _: None
    averagers = import_module("torch.distributed.algorithms.model_averaging.averagers")
    every = method["options"]["sync_every"]
    periodic = averagers.PeriodicModelAverager(period=every, warmup_steps=0)
    periodic.step = 1  # else it averages after the first step, and not after the last
    return periodic.average_parameters


def _parallel(module: Any, method: dict[str, Any]) -> Any:
    """The module with the method's hook, or with its leaves cut into slices."""
    if method["name"] == "fully_shard":
        import_module("torch.distributed.fsdp").fully_shard(module)
        return module
    parallel = import_module("torch.nn.parallel").DistributedDataParallel
    hooks = "torch.distributed.algorithms.ddp_comm_hooks"
    model = parallel(module, bucket_cap_mb=_BUCKET_MB, gradient_as_bucket_view=True)
    if method["name"] in ("fp16", "bf16"):
        default = import_module(f"{hooks}.default_hooks")
        hook = getattr(default, f"{method['name']}_compress_hook")
        model.register_comm_hook(None, hook)
    elif method["name"] == "power_sgd":
        power = import_module(f"{hooks}.powerSGD_hook")
        state = power.PowerSGDState(
            None,
            matrix_approximation_rank=method["options"]["rank"],
            start_powerSGD_iter=HOOK_START,
        )
        model.register_comm_hook(state, power.powerSGD_hook)
    elif method["name"] != "fp32":
        raise ValueError(f"there is no hook {method['name']!r}")
    return model


def make(place: worker.WorkerPlace, problem: Problem) -> worker.Begin:
    """Joins the other processes.

    Raises:
      ImportError: PyTorch is missing.
    """
    torch = import_module("torch")
    torch.set_num_threads(1)
    import_module("torch.distributed").init_process_group(
        "gloo",
        init_method=f"tcp://{place.address}",
        rank=place.process,
        world_size=place.processes,
        timeout=_PATIENCE,
    )
    return lambda method: begin(method, problem)


if __name__ == "__main__":
    worker.main(make)
