"""A key-value store by which processes talk beside the collectives, which may hang.

It is that of JAX's own coordination service, which process 0 holds; JAX has no public
door to it (checked: 0.10, 0.12). With one process, it is a dictionary.

Cost: a round trip to process 0 for each call.
"""

from contextlib import suppress
from typing import Any

from jax._src import distributed

_FOLDER = "relaxjax"


class LocalStore:
    """A store for one process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, key: str, text: str) -> None:
        """Writes a text, in place of what was there."""
        self._texts[key] = text

    def put_if_absent(self, key: str, text: str) -> str:
        """Writes a text unless there is one; returns the text that is there then."""
        return self._texts.setdefault(key, text)

    def read(self, folder: str) -> dict[str, str]:
        """All texts under `folder/`, by the rest of their keys."""
        start = f"{folder}/"
        return {
            key.removeprefix(start): text
            for key, text in self._texts.items()
            if key.startswith(start)
        }


class ServiceStore:
    """The store of JAX's coordination service, with the methods of `LocalStore`."""

    def __init__(self, client: Any):
        self._client = client

    def put(self, key: str, text: str) -> None:
        """Writes a text, in place of what was there."""
        self._client.key_value_set(f"{_FOLDER}/{key}", text, allow_overwrite=True)

    def put_if_absent(self, key: str, text: str) -> str:
        """Writes a text unless there is one; returns the text that is there then."""
        with suppress(Exception):  # JAX's error type for "there is one" has changed
            self._client.key_value_set(f"{_FOLDER}/{key}", text)
        return self._client.key_value_try_get(f"{_FOLDER}/{key}")

    def read(self, folder: str) -> dict[str, str]:
        """All texts under `folder/`, by the rest of their keys."""
        start = f"{_FOLDER}/{folder}/"
        entries = self._client.key_value_dir_get(start)
        return {key.removeprefix(start): text for key, text in entries}

    def wait_for_others(self, processes: int) -> None:
        """Blocks until every other process has left the service (or died long ago)."""
        with suppress(Exception):  # the service ends while this waits
            self._client.get_live_nodes(list(range(processes)))


def open_store() -> LocalStore | ServiceStore:
    """The store of this job, after JAX's distributed runtime has started."""
    client = distributed.global_state.client
    return LocalStore() if client is None else ServiceStore(client)
