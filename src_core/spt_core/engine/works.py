"""The requests that the engine knows; importing this loads torch."""

import logging
import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch

import spt_core
from spt_core import bundled
from spt_core.devices import free_memory
from spt_core.engine import failures
from spt_core.engine.analyse import analyse
from spt_core.engine.desk import Desk
from spt_core.engine.messages import MEMORY, Failure, Request, Work
from spt_core.engine.priority import cores
from spt_core.engine.questions import explore_slide, faithfulness_of, without_region
from spt_core.engine.steering import Steering

log = logging.getLogger(__name__)


class Works:
    """All kinds of work, around one desk."""

    def __init__(self) -> None:
        torch.set_num_threads(cores())
        self.desk = Desk()
        self._steering = Steering()

    def table(self) -> dict[str, Callable[[Request], Work]]:
        """What to call for each ``do``."""
        return {
            "analyse": self._analyse,
            "explore": lambda request: explore_slide(request, self.desk),
            "what_if": lambda request: without_region(request, self.desk),
            "faithfulness": lambda request: faithfulness_of(request, self.desk),
        }

    def warm_up(self) -> None:
        """Load what the first analysis most likely needs, and run it once.

        Its libraries take seconds to import, which nobody should wait for.
        """
        try:
            encoder = self.desk.encoder(bundled.ENCODER)
            side = encoder.card.input_size or encoder.card.patch_size
            with torch.inference_mode():
                encoder(torch.zeros(1, side, side, 3, dtype=torch.uint8), side)
        # Whoever asks for it will be told.
        except Exception:
            log.exception("The engine could not be warmed up")

    def explain(self, error: BaseException, request: Request) -> Failure:
        """What to say of an error; where memory is short, let go of what is held."""
        failure = failures.explain(error, request)
        if failure.kind == MEMORY:
            self.desk.tidy()
            free_memory()
        return failure

    def steer(self, _number: int, request: Mapping[str, Any]) -> None:
        """Go on at another place of the slide that is being analysed."""
        place = request.get("l0_xy")
        self._steering.l0_xy = (
            None if place is None else (float(place[0]), float(place[1]))
        )

    def _analyse(self, request: Request) -> Work:
        self._steering = Steering()
        return analyse(request, self.desk, self._steering)


def about() -> dict[str, Any]:
    """What the engine runs on."""
    devices = [{"id": "cpu", "name": f"{_cpu_name()} ({cores()} cores)"}]
    best = "cpu"
    if torch.backends.mps.is_available():
        devices.insert(0, {"id": "mps", "name": "Apple GPU"})
        best = "mps"
    if torch.cuda.is_available():
        found = [
            {"id": f"cuda:{i}", "name": torch.cuda.get_device_name(i)}
            for i in range(torch.cuda.device_count())
        ]
        devices = [*found, *devices]
        best = found[0]["id"]
    return {
        "device": best,
        "devices": devices,
        "threads": torch.get_num_threads(),
        "versions": {
            "napari-spt": spt_core.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "Processor"
