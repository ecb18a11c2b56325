"""The processes of torchft, each started again when it dies, and their lighthouse.

The lighthouse says who takes part in a round. It waits up to a minute for all that send
heartbeats, as the program of that name does by default, and takes who has sent none for
`lost_after` seconds as gone.
"""

import os
import signal
import sys
import time
from importlib import import_module

from benchmarks.islands.setting import Setting
from relaxjax.islands.started._incarnations import Place

ADDRESS = "TORCHFT_LIGHTHOUSE"
_POLL = 0.05


def main() -> None:
    """Runs until SIGTERM."""
    setting, _ = Setting.read()
    lighthouse = import_module("torchft.coordination").LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=60_000,  # its class has another default than its program
        heartbeat_timeout_ms=round(1000 * setting.lost_after),
    )
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-u", "-m"]
    command.append("benchmarks.islands.torchft_island")
    env = {**os.environ, ADDRESS: lighthouse.address()}
    places = [Place(f"island-{i}", command, env) for i in range(setting.islands)]
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    while not asked:
        for place in places:
            if how := place.ended():
                print(how, flush=True)
                place.start()
        time.sleep(_POLL)
    for place in places:
        place.send(signal.SIGKILL)


if __name__ == "__main__":
    main()
