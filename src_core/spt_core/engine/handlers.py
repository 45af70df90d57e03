"""What is done for each request; importing this loads torch."""

import logging
import platform

import torch

import spt_core
from spt_core import bundled
from spt_core.devices import free_memory
from spt_core.engine.analyse import analyse
from spt_core.engine.failures import failed_by
from spt_core.engine.loaded import LoadedModels
from spt_core.engine.map_slides import slides_mapped
from spt_core.engine.priority import cores
from spt_core.engine.protocol import (
    Analyse,
    AskWithout,
    CheckFaithfulness,
    Device,
    Failed,
    FailureKind,
    MapSlides,
    MapTissue,
    Ready,
    Request,
    Work,
)
from spt_core.engine.questions import ask_without, check_faithfulness, map_tissue
from spt_core.engine.steering import Steering

log = logging.getLogger(__name__)


class Handlers:
    """All kinds of work, with what is loaded for them."""

    def __init__(self) -> None:
        torch.set_num_threads(cores())
        self._loaded = LoadedModels()
        self._steering = Steering()

    def start(self, request: Request) -> Work:
        """The work that answers a request."""
        match request:
            case Analyse():
                self._steering = Steering(request.l0_from)
                return analyse(request, self._loaded, self._steering)
            case MapTissue():
                return map_tissue(request, self._loaded)
            case AskWithout():
                return ask_without(request, self._loaded)
            case CheckFaithfulness():
                return check_faithfulness(request, self._loaded)
            case MapSlides():
                return slides_mapped(request, self._loaded)

    def look_here(self, l0_xy: tuple[float, float] | None) -> None:
        """Go on at another place of the slide that is being analysed."""
        self._steering.l0_xy = l0_xy

    def failed(self, error: BaseException, request: Request) -> Failed:
        """What an error means; where memory is short, let go of what is held."""
        failed = failed_by(error, request)
        if failed.kind == FailureKind.OUT_OF_MEMORY:
            self._loaded.clear()
            free_memory()
        return failed

    def warm_up(self) -> None:
        """Load what the first analysis most likely needs, and run it once.

        Its libraries take seconds to import, which nobody should wait for.
        """
        try:
            encoder = self._loaded.encoder(bundled.ENCODER)
            side = encoder.card.input_size or encoder.card.patch_size
            with torch.inference_mode():
                encoder(torch.zeros(1, side, side, 3, dtype=torch.uint8), side)
        # Whoever asks for it will be told.
        except Exception:
            log.exception("The engine could not be warmed up")


def ready() -> Ready:
    """What the engine runs on, its first choice of devices first."""
    devices = [Device("cpu", f"{_cpu_name()} ({cores()} cores)")]
    if torch.backends.mps.is_available():
        devices.insert(0, Device("mps", "Apple GPU"))
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        found = [
            Device(f"cuda:{i}", torch.cuda.get_device_name(i)) for i in range(count)
        ]
        devices = [*found, *devices]
    return Ready(
        device=devices[0].id,
        devices=tuple(devices),
        threads=torch.get_num_threads(),
        versions={
            "napari-spt": spt_core.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "Processor"
