"""A server: it sends leaves in the order that it is asked for, and takes gradients.

The order is kept by the sender, as in TicTac: each worker's leaves are written, one
after the other, into one connection, and TCP keeps what is written in order. With
several servers each one has the ranks of its own leaves, and knows of no other server.

Source: Hashemi, Abdu Jyothi and Campbell, "TicTac", MLSys 2019, section 5.

Cost: one thread for each worker.
"""

import hmac
import socket
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from benchmarks.testbed.message import (
    Pace,
    TransferError,
    receive_array,
    receive_header,
    send,
)
from benchmarks.testbed.records import Served
from benchmarks.testbed.shard import Shard


def serve(config: Served, pipe: Connection) -> None:
    """Runs a server until its pipe ends; sends its port, then answers "values"."""
    optimizer = config.optimizer() if config.optimizer else None
    shard = Shard(config.leaves, optimizer, workers=config.workers, wait=config.wait)
    listener = socket.create_server((config.place.address, 0))
    Thread(target=_accept, args=(listener, shard, config), daemon=True).start()
    pipe.send(listener.getsockname()[1])
    while pipe.recv() == "values":
        pipe.send(shard.values())


def _accept(listener: socket.socket, shard: Shard, config: Served) -> None:
    pace = Pace(config.place.rate)
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Thread(target=_attend, args=(peer, shard, config, pace), daemon=True).start()


def _attend(peer: socket.socket, shard: Shard, config: Served, pace: Pace) -> None:
    """Answers one worker until it goes."""
    try:
        hello = receive_header(peer)
        if not hmac.compare_digest(str(hello.get("token")), config.token):
            return
        while True:
            peer.settimeout(None)  # between two messages a worker may compute
            header = receive_header(peer)
            peer.settimeout(config.wait)
            _answer(peer, header, shard, hello["worker"], pace)
    except (ValueError, TransferError) as error:
        send(peer, {"kind": "error", "text": str(error)})
    except OSError:
        pass  # the worker is gone, and whoever waits for it will say so
    finally:
        peer.close()


def _answer(
    peer: socket.socket, header: dict[str, Any], shard: Shard, worker: int, pace: Pace
) -> None:
    if header["kind"] == "pull":
        for name in header["order"]:
            leaf = shard.read(name, header["version"])
            send(peer, {"kind": "leaf", "name": name}, leaf, pace)
    elif header["kind"] == "push":
        gradient = receive_array(peer, *shard.shape(header["name"]))
        shard.add(worker, header["name"], gradient)
    elif header["kind"] == "done":
        send(peer, {"kind": "thanks"})
    else:
        raise ValueError(f"a message of kind {header['kind']!r}: unknown")
