"""An engine as the window has it, with the time of each of its replies."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spt_core.engine.client import EngineClient, EngineState
from spt_core.engine.protocol import END_TYPES, Failed, MapTissue, Reply, Request


class Clocked:
    """An engine whose replies are kept with the seconds since the request."""

    def __init__(self) -> None:
        self.engine = EngineClient()

    def start(self) -> None:
        self.engine.start()
        while self.engine.state != EngineState.READY:
            time.sleep(0.01)

    def warm_up(self, folder: Path) -> None:
        """Wait until it is warm, as while somebody looks for a slide to open."""
        self.run_to_its_end(MapTissue(folder / "nothing.h5", ""))

    def run(self, request: Request) -> list[tuple[float, Reply]]:
        seen = self.run_to_its_end(request)
        if isinstance(seen[-1][1], Failed):
            raise SystemExit(f"{request}: {seen[-1][1]}")
        return seen

    def run_to_its_end(self, request: Request) -> list[tuple[float, Reply]]:
        began = time.perf_counter()
        number = self.engine.submit(request)
        seen: list[tuple[float, Reply]] = []
        while not seen or not isinstance(seen[-1][1], END_TYPES):
            for received in self.engine.poll():
                if received.request == number:
                    seen.append((time.perf_counter() - began, received.message))
            time.sleep(0.005)
        return seen


def first(
    heard: list[tuple[float, Reply]],
    kind: type,
    fits: Callable[[Any], bool] = lambda _: True,
) -> float:
    return next(
        seconds
        for seconds, message in heard
        if isinstance(message, kind) and fits(message)
    )
