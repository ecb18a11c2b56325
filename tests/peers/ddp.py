"""One of several processes of PyTorch's DDP: `python -m tests.peers.ddp RANK FOLDER`.

A model's loss is the sum of its parameters times given numbers, so that these are its
gradient; what a communication hook makes of it stays in `.grad`. Writes the arrays of
this process to FOLDER/RANK.npz, by names like "power_sgd/3/w".
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.peers import numbers

torch: Any = import_module("torch")
dist = import_module("torch.distributed")
optim = import_module("torch.distributed.optim")
ALGORITHMS = "torch.distributed.algorithms"
HOOKS = f"{ALGORITHMS}.ddp_comm_hooks"
averagers = import_module(f"{ALGORITHMS}.model_averaging.averagers")
default_hooks = import_module(f"{HOOKS}.default_hooks")
post_localSGD_hook = import_module(f"{HOOKS}.post_localSGD_hook")
powerSGD_hook = import_module(f"{HOOKS}.powerSGD_hook")
DistributedDataParallel = torch.nn.parallel.DistributedDataParallel

RANK, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
found: dict[str, Any] = {}


class Given(torch.nn.Module):
    """The sum of the parameters times given numbers, or half their squared distance."""

    def __init__(self) -> None:
        super().__init__()
        start = numbers.draw(99)
        for name, value in start.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(value)))

    def forward(self, given: dict[str, Any], *, distance: bool = False):
        terms = [
            ((p - given[name]) ** 2).sum() / 2 if distance else (p * given[name]).sum()
            for name, p in self.named_parameters()
        ]
        return torch.stack(terms).sum()


def tensors(arrays: numbers.Arrays) -> dict[str, Any]:
    return {name: torch.tensor(value) for name, value in arrays.items()}


def keep(case: str, step: int, arrays: dict[str, Any]) -> None:
    for name, value in arrays.items():
        found[f"{case}/{step}/{name}"] = value.detach().numpy().copy()


def gradients(case: str, hook=None, state=None, after=None) -> None:
    """What the hook makes of the workers' gradients, step by step."""
    model = Given()
    ddp = DistributedDataParallel(model)
    if hook:
        ddp.register_comm_hook(state, hook)
    for step in range(numbers.STEPS):
        model.zero_grad()
        ddp(tensors(numbers.gradient(RANK, step))).backward()
        keep(case, step, {name: p.grad for name, p in model.named_parameters()})
        if after:
            after(step)


def power_sgd() -> None:
    """PowerSGD, with the residual and Q after each compressed step."""
    state = powerSGD_hook.PowerSGDState(
        process_group=None,
        matrix_approximation_rank=2,
        start_powerSGD_iter=numbers.PLAIN,
        min_compression_rate=1,
    )
    order: list[tuple[str, Any]] = []
    shapes = {torch.Size(s): n for n, s in numbers.SHAPES.items()}

    def hook(state, bucket):
        order[:] = [(shapes[p.shape], p.shape) for p in bucket.parameters()]
        return powerSGD_hook.powerSGD_hook(state, bucket)

    def after(step: int) -> None:
        if step < numbers.PLAIN:
            return
        parts = torch.split(state.error_dict[0], [s.numel() for _, s in order])
        residual = {n: x.view(s) for (n, s), x in zip(order, parts, strict=True)}
        matrices = [(n, s) for n, s in order if len(s) == 2]
        parts = torch.split(state.q_memory_dict[0], [2 * s[1] for _, s in matrices])
        pairs = zip(matrices, parts, strict=True)
        right = {n: x.view(1, s[1], 2) for (n, s), x in pairs}
        keep("residual", step, residual)
        keep("right", step, right)

    gradients("power_sgd", hook, state, after)


def post_local_sgd() -> None:
    """Params after each step of post-local SGD, of plain SGD."""
    model, targets = Given(), tensors(numbers.draw(RANK))
    ddp = DistributedDataParallel(model)
    state = post_localSGD_hook.PostLocalSGDState(
        None, None, numbers.WARM_UP, post_local_gradient_allreduce=False
    )
    ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    optimizer = optim.PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), numbers.RATE),
        averagers.PeriodicModelAverager(numbers.PERIOD, numbers.WARM_UP),
    )
    for step in range(numbers.STEPS):
        optimizer.zero_grad()
        ddp(targets, distance=True).backward()
        optimizer.step()
        keep("post_local_sgd", step, dict(model.named_parameters()))


def zero() -> None:
    """Params after each step of Adam whose state is sharded."""
    model = Given()
    ddp = DistributedDataParallel(model)
    optimizer = optim.ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, lr=numbers.RATE
    )
    for step in range(numbers.STEPS):
        optimizer.zero_grad()
        ddp(tensors(numbers.gradient(RANK, step))).backward()
        optimizer.step()
        keep("zero", step, dict(model.named_parameters()))


def main() -> None:
    torch.set_num_threads(1)
    where = f"file://{FOLDER}/rendezvous"
    dist.init_process_group("gloo", where, rank=RANK, world_size=numbers.WORKERS)
    gradients("mean")
    gradients("fp16", default_hooks.fp16_compress_hook)
    power_sgd()
    post_local_sgd()
    zero()
    np.savez(FOLDER / f"{RANK}.npz", **found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
