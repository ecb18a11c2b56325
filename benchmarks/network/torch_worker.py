"""PyTorch's DDP and FSDP2 as a system of the network bench, over gloo.

Run as `python -m benchmarks.network.torch_worker FILE PROCESS PROCESSES ADDRESS`.

DDP's hooks: none (float32), 16 bits, and PowerSGD with error feedback, warm started.
Gradients travel in one bucket. PyTorch is for this benchmark alone.
"""

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
    """The training of "alone", "fully_shard", or DDP's with a hook or "fp32"."""
    torch = import_module("torch")
    module = twin(problem.params, heads=HEADS)
    model = module if method["name"] == "alone" else _parallel(module, method)
    adam = torch.optim.Adam(model.parameters(), lr=method["rate"], fused=True)

    def advance(rows: np.ndarray) -> float:
        adam.zero_grad(set_to_none=True)
        loss = model(torch.from_numpy(rows))
        loss.backward()
        adam.step()
        return loss.item()

    def judged(windows: np.ndarray) -> float:
        with torch.no_grad():
            return module(torch.from_numpy(windows)).item()

    return worker.Session(advance, judged)


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
