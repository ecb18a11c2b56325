"""PyTorch beside the golden vectors: its casts, quantization, PowerSGD and SGD.

python -m relaxjax.golden --implementation examples.golden.with_torch:implementation

The PowerSGD hook is taken at its arithmetic: its own orthogonalisation, with a mean
over a list of workers in the place of its messages.
"""

from importlib import import_module
from typing import Any

import numpy as np

HOOK = "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook"


def implementation(name: str, config: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """Arrays of a rule, by name."""
    torch = import_module("torch")
    tensors = {key: torch.from_numpy(x) for key, x in inputs.items()}
    if name not in RULES:
        raise NotImplementedError(name)
    found = RULES[name](torch, config, **tensors)
    return {key: np.asarray(x.to(torch.float64)) for key, x in found.items()}


def cast(torch: Any, config: Any, x: Any) -> Any:
    """A cast there and back."""
    return {"decoded": x.to(getattr(torch, config["dtype"])).float()}


def quantize(torch: Any, config: Any, x: Any) -> Any:
    """Fake quantization, a channel for each block; the last block is filled up."""
    levels, size = 2 ** (config["bits"] - 1) - 1, config["block_size"]
    rows = torch.nn.functional.pad(x, (0, -len(x) % size)).reshape(-1, size)
    scale = rows.abs().amax(dim=1) / levels
    scale = torch.where(scale == 0, 1.0, scale)
    zero = torch.zeros(len(rows), dtype=torch.int32)
    found = torch.fake_quantize_per_channel_affine(
        rows, scale, zero, 0, -levels, levels
    )
    return {"decoded": found.ravel()[: len(x)]}


def top_k(torch: Any, config: Any, x: Any) -> Any:
    """`torch.topk` of the magnitudes."""
    kept = x.abs().topk(config["k"]).indices
    return {"decoded": torch.zeros_like(x).index_copy(0, kept, x[kept])}


def power_sgd(torch: Any, config: Any, matrices: Any, right: Any) -> Any:
    """The hook's steps, in its order, at its default epsilon of 0."""
    orthogonalize = import_module(HOOK)._orthogonalize
    q, errors, seen = right, torch.zeros_like(matrices), []
    for _ in range(config["steps"]):
        m = matrices + errors
        p = (m @ q).mean(dim=0)[None].clone()
        orthogonalize(p)
        q = (m.mT @ p[0]).mean(dim=0)
        seen.append(p[0] @ q.T)
        if config["error_feedback"]:
            errors = m - seen[-1]
    return {"approximation": torch.stack(seen)}


def nesterov_outer(torch: Any, config: Any, deltas: Any) -> Any:
    """`torch.optim.SGD`."""
    params = torch.zeros_like(deltas[0], requires_grad=True)
    sgd = torch.optim.SGD(
        [params], config["learning_rate"], config["momentum"], nesterov=True
    )
    seen = []
    for delta in deltas:
        params.grad = delta
        sgd.step()
        seen.append(params.detach().clone())
    return {"params": torch.stack(seen)}


RULES = {
    "cast": cast,
    "quantize": quantize,
    "top_k": top_k,
    "power_sgd": power_sgd,
    "nesterov_outer": nesterov_outer,
}
