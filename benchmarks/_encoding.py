"""Pieces of encoding that the benchmarks time: bare encoder, bare reads, all of it."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openslide
import torch

from spt_core import open_slide
from spt_core.patches import EncoderCard, EncodeSettings, SlideResult, SlideStarted
from spt_core.patches.encode import encode_slides, slide_tasks
from spt_core.patches.encoder import TorchEncoder
from spt_core.patches.order import coarse_to_fine
from spt_core.patches.registry import load_encoder
from spt_core.slides.grid import lay_grid
from spt_core.slides.tissue import find_tissue

WEIGHTS = Path("../shared/weights/mobilenetv2_imagenet.safetensors")


def mobilenet(weights: Path | None) -> TorchEncoder:
    """MobileNetV2 with its weights, or with random ones, which are as fast."""
    path = weights or WEIGHTS
    if path.exists():
        return load_encoder("mobilenetv2", path)
    from torchvision.models import mobilenet_v2

    from spt_core.patches.registry import find_card

    torch.manual_seed(0)
    return TorchEncoder(mobilenet_v2(weights=None).features, find_card("mobilenetv2"))


class FreeEncoder:
    """Costs nothing: what remains is reading."""

    card = EncoderCard(name="free", dim=8, patch_size=224, mpp=0.5)
    sha256 = "0" * 64

    def to(self, device: torch.device) -> "FreeEncoder":
        return self

    def way(self, patches: int) -> str:
        return "free"

    def knows(self, way: str) -> bool:
        return way == "free"

    def __call__(
        self, pixels: torch.Tensor, size: int, stain: object = None, way: str = ""
    ) -> torch.Tensor:
        return pixels[:, 0, :8, 0].float()


def in_threads(work: Callable[[int], int], count: int) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds, and the sum of what ``count`` threads return."""
    sums = [0] * count

    def one(i: int) -> None:
        sums[i] = work(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    wall, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - wall, time.process_time() - cpu, sum(sums)


def bare_encoder(
    encoder: TorchEncoder, size: int, patches: int, *, lanes: int, threads: int
) -> tuple[float, float]:
    """Wall and CPU seconds a patch of the network alone, on ready float tensors."""
    torch.set_num_threads(threads)
    batch = torch.rand(32, 3, size, size).to(memory_format=torch.channels_last)
    rounds = max(1, patches // (32 * lanes))
    network = encoder._graph(encoder.way(patches)) or encoder.module

    def work(_: int) -> int:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            for _ in range(rounds):
                out = network(batch)
                if out.ndim == 4:
                    out.mean(dim=(2, 3))
        return 32 * rounds

    wall, cpu, done = in_threads(work, lanes)
    torch.set_num_threads(torch.get_num_threads())
    return wall / done, cpu / done


def bare_reads(path: Path, patch_size: int, threads: int) -> tuple[float, float]:
    """Wall and CPU seconds a patch of openslide's reads of the same regions."""
    slide = open_slide(path)
    grid = lay_grid(slide, find_tissue(slide), patch_size=patch_size, target_mpp=0.5)
    blocks = list(coarse_to_fine(grid.g_rc))
    places = iter(blocks)
    lock = threading.Lock()
    step = np.asarray(grid.l0_step_xy)
    with openslide.OpenSlide(path) as handle:
        handle.set_cache(openslide.OpenSlideCache(96 * 2**20))

        def work(_: int) -> int:
            done = 0
            while True:
                with lock:
                    rows = next(places, None)
                if rows is None:
                    return done
                l0_xy = grid.l0_xy[rows]
                corner = l0_xy.min(axis=0)
                size = l0_xy.max(axis=0) + step - corner
                region = handle.read_region(tuple(corner), 0, tuple(size))
                np.asarray(region)
                done += len(rows)

        wall, cpu, done = in_threads(work, threads)
    return wall / done, cpu / done


def whole_pipeline(
    paths: list[Path], out: Path, encoder: object, patch_size: int, **options: float
) -> tuple[float, float, int]:
    """Wall and CPU seconds a patch from the first slide's start on, and the patches."""
    settings = EncodeSettings(
        patch_size=patch_size, target_mpp=0.5, device="cpu", redo=True, **options
    )
    patches, begun = 0, None
    for event in encode_slides(slide_tasks(paths, out), settings, encoder=encoder):
        if isinstance(event, SlideStarted) and begun is None:
            begun = time.perf_counter(), time.process_time()
        if isinstance(event, SlideResult):
            if event.status != "done":
                raise RuntimeError(event.reason)
            patches += event.patches
    assert begun is not None
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return wall / patches, cpu / patches, patches
