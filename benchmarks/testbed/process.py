"""A process of a fleet: how it is started, how it fails, how it ends.

A process gets a fresh interpreter (spawn: forking a process in which JAX runs is not
safe) and ends with the process that started it, since its pipe then ends.

Cost: a few seconds of imports.
"""

import os
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, NamedTuple

import jax

from benchmarks.testbed.message import TransferError
from relaxjax.hosts import enter

_PATIENCE = 2.0


class Failure(NamedTuple):
    """What a process says before it ends by an error.

    Attributes:
      transfer: whether a transfer did not come.
      text: what happened.
    """

    transfer: bool
    text: str


class ProcessSetting(NamedTuple):
    """The environment of a process, set before JAX starts in it.

    Attributes:
      namespace: namespace that is entered, or None.
      platform: platform of JAX, such as "cpu"; None: JAX's choice.
      threads: threads of XLA's CPU backend; None: XLA's choice.
      cores: cores to which the process is bound; None: all.
    """

    namespace: str | None
    platform: str | None
    threads: int | None
    cores: tuple[int, ...] | None


class Child:
    """A running process, and the pipe to it.

    Raises:
      TypeError: `config` cannot be pickled.
    """

    def __init__(
        self, name: str, main: Callable[..., None], config: Any, setting: ProcessSetting
    ):
        self.name = name
        context = get_context("spawn")
        self.pipe, far = context.Pipe()
        arguments = (main, portable(name, config), setting, far)
        self.process: BaseProcess = context.Process(
            target=_run, args=arguments, name=name, daemon=True
        )
        self.process.start()
        far.close()

    def heard(self) -> Any:
        """What it sends next; call it when the pipe is ready.

        Raises:
          TransferError: a transfer did not come.
          RuntimeError: it failed otherwise, or it is gone.
        """
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(_PATIENCE)
            raise RuntimeError(
                f"{self.name} is gone, exit code {self.process.exitcode}"
            ) from None
        if isinstance(answer, Failure):
            kind = TransferError if answer.transfer else RuntimeError
            raise kind(f"{self.name}: {answer.text}")
        return answer

    def tell(self, what: Any) -> None:
        """Sends it something picklable, without waiting until it is read."""
        Thread(target=_send, args=(self.pipe, what), daemon=True).start()

    def end(self) -> None:
        """Waits for its end, which the closing of its pipe asks for, or kills it."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def portable(name: str, config: Any) -> bytes:
    """The configuration of a process, pickled.

    Raises:
      TypeError: it cannot be pickled.
    """
    try:
        return pickle.dumps(config)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"{name} is a process of its own and cannot be sent {error}: layers, loss "
            "and optimizer must be functions of a module (or functools.partial of "
            "one), not lambdas or functions inside functions"
        ) from error


def _run(
    main: Callable[..., None], config: bytes, setting: ProcessSetting, pipe: Connection
) -> None:
    """The process: its setting, its main function, and what it says if it fails."""
    try:
        _prepare(setting)
        main(pickle.loads(config), pipe)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the process that started it is gone
    except TransferError as error:
        _send(pipe, Failure(True, str(error)))
    except Exception:
        _send(pipe, Failure(False, traceback.format_exc()))


def _send(pipe: Connection, what: Any) -> None:
    with suppress(OSError):  # who awaits an answer reports the lost process
        pipe.send(what)


def _prepare(setting: ProcessSetting) -> None:
    if setting.namespace is not None:
        enter(setting.namespace)
    if setting.cores is not None:
        os.sched_setaffinity(0, setting.cores)
    if setting.threads is not None:
        os.environ["NPROC"] = str(setting.threads)
        if setting.threads == 1:
            one = "--xla_cpu_multi_thread_eigen=false"
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {one}"
    if setting.platform is not None:
        jax.config.update("jax_platforms", setting.platform)
