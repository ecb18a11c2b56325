"""A process of torchft's DiLoCo: same model, batches, pace, H, P and outer optimizer.

A fragment is a layer, as it is one of the model's modules. A round is one fragment's:
each process that takes part contributes what the fragment has moved since the process
has taken it over, and that counts if the round is committed. Who comes back trains
until the others' next round, takes the model of one of them there, and counts from
there.

No JAX in here, so that it starts as quickly as PyTorch does. PyTorch and torchft are
for this benchmark alone, and imported when it runs.
"""

import os
import time
from importlib import import_module
from itertools import count
from typing import Any

from benchmarks.islands import data
from benchmarks.islands.diary import Diary
from benchmarks.islands.setting import Setting
from benchmarks.islands.torchft_crew import ADDRESS
from relaxjax.islands.one._pace import Pace

EVERY = 10  # steps from one line of the diary to the next


class Training:
    """A model, its optimizers, and the tokens that each fragment has moved by."""

    def __init__(self, setting: Setting):
        self.torch = torch = import_module("torch")
        arrays = data.params_of(setting.seed, setting.width)
        self.layers = [self._layer(arrays[f"w{i}"], arrays[f"b{i}"]) for i in range(3)]
        self.model = torch.nn.ModuleList(self.layers)
        self.inner = torch.optim.SGD(self.model.parameters(), lr=setting.rate)
        self.outer = [
            torch.optim.SGD(layer.parameters(), lr=0.7, momentum=0.9, nesterov=True)
            for layer in self.layers
        ]
        self.tokens = [0] * len(self.layers)
        self.store: Any = None

    def step(self, rows: data.Rows) -> None:
        """A step of the inner optimizer, after which torchft may merge."""
        self.tokens = [tokens + len(rows.labels) for tokens in self.tokens]
        self.inner.zero_grad()
        self.loss(rows).backward()
        self.inner.step()

    def loss(self, rows: data.Rows) -> Any:
        """Mean cross-entropy in nats."""
        x, labels = map(self.torch.from_numpy, rows)
        for layer in self.layers[:-1]:
            x = self.torch.relu(layer(x))
        logits = self.layers[-1](x)
        return self.torch.nn.functional.cross_entropy(logits, labels.long())

    def state(self) -> dict[str, Any]:
        """What a process that comes back takes over."""
        outer = [optimizer.state_dict() for optimizer in self.outer]
        inner = self.inner.state_dict()
        return {"model": self.model.state_dict(), "inner": inner, "outer": outer}

    def load(self, state: dict[str, Any]) -> None:
        """Takes another process's model over; own steps are lost."""
        self.model.load_state_dict(state["model"])
        self.inner.load_state_dict(state["inner"])
        for optimizer, own in zip(self.outer, state["outer"], strict=True):
            optimizer.load_state_dict(own)
        self.tokens = [0] * len(self.layers)

    def _layer(self, w: Any, b: Any) -> Any:
        layer = self.torch.nn.Linear(*w.shape)
        with self.torch.no_grad():
            layer.weight.copy_(self.torch.from_numpy(w.T.copy()))
            layer.bias.copy_(self.torch.from_numpy(b))
        return layer


def main() -> None:
    """Trains until it is ended."""
    setting, folder = Setting.read()
    name = os.environ["RELAXJAX_ISLAND"]
    diary, number = Diary(folder, name), int(name.rpartition("-")[2])
    train, held_out = data.read(folder)
    batches = data.batches(train, setting.seed + os.getpid(), setting.rows)
    test = data.noisy(held_out, 0)
    training, began = Training(setting), time.monotonic()
    training.torch.set_num_threads(1)
    manager, committed = _manager(training, name)
    pace = Pace(setting.pace_of(number))
    p, every = setting.fragments, setting.every
    diloco = import_module("torchft.local_sgd").DiLoCo
    with diloco(manager, training.layers, training.inner, training.outer, p * every):
        for steps in count(1):
            training.step(next(batches))
            if steps == 1:
                diary.write("compiled", seconds=time.monotonic() - began)
            if steps % every == 0:
                after = manager.current_step()
                fragment = (after - committed[-1]) % p
                tokens, training.tokens[fragment] = training.tokens[fragment], 0
                with training.torch.no_grad():
                    loss = float(training.loss(test))
                said = {"tokens": tokens, "committed": committed[-1], "loss": loss}
                diary.write("round", round=after, **said)
            if steps % EVERY == 1:
                diary.write("step", steps=steps, cpu=time.process_time())
            pace.keep()


def _manager(training: Training, name: str) -> tuple[Any, list[bool]]:
    """torchft's manager, and whether its rounds were committed."""
    torchft, committed = import_module("torchft"), list[bool]()

    class Manager(torchft.Manager):
        def should_commit(self, *arguments: Any, **named: Any) -> bool:
            committed.append(super().should_commit(*arguments, **named))
            return committed[-1]

    # Who has it keeps it: without the server the others wait for it in vain.
    store = training.store = training.torch.distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    manager = Manager(
        pg=torchft.ProcessGroupGloo(),
        load_state_dict=training.load,
        state_dict=training.state,
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=os.environ[ADDRESS],
        replica_id=name,
        hostname="127.0.0.1",
    )
    return manager, committed


if __name__ == "__main__":
    main()
