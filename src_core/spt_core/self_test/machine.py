"""What a computer has: versions, devices, memory, room on its disks."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from platformdirs import user_cache_path

from spt_core import __version__, devices
from spt_core.engine.priority import cores
from spt_core.memory import memory_bytes
from spt_core.self_test.finding import Finding, doubtful, failed, ok

_PACKAGES = (
    "torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "h5py", "zarr",
    "dask", "distributed", "tifffile", "imagecodecs", "openslide-python",
    "openslide-bin", "safetensors",
)  # fmt: skip
_GB = 1e9
LITTLE_MEMORY, LITTLE_DISK, NO_DISK = 4 * _GB, 10 * _GB, 1 * _GB


def versions() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield ok("system", f"{system}, Python {platform.python_version()}")
    known, missing = [f"napari-spt {__version__}"], []
    for name in _PACKAGES:
        try:
            # Its own number also says for which CUDA it was built.
            number = torch.__version__ if name == "torch" else version(name)
            known.append(f"{name} {number}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield failed(
            "packages",
            f"{', '.join(known)}; missing: {', '.join(missing)}",
            "Install napari-spt again: pip install --upgrade napari-spt",
        )
    else:
        yield ok("packages", ", ".join(known))


def memory() -> Iterator[Finding]:
    total, free = memory_bytes()
    if total is None:
        yield doubtful("memory", "unknown", "Nothing: this system does not say.")
        return
    found = f"{total / _GB:.1f} GB"
    if free is not None:
        found += f", {free / _GB:.1f} GB free"
    if (total if free is None else free) < LITTLE_MEMORY:
        yield doubtful("memory", found, "Close other programs before large slides.")
    else:
        yield ok("memory", found)


def disks() -> Iterator[Finding]:
    cache = user_cache_path("napari-spt", appauthor=False)
    for name, folder in (
        ("disk of the cache", Path(os.environ.get("NAPARI_SPT_CACHE") or cache)),
        ("disk of temporary files", Path(tempfile.gettempdir())),
    ):
        there = next(one for one in (folder, *folder.parents) if one.exists())
        free = shutil.disk_usage(there).free
        found = f"{free / _GB:.1f} GB free"
        if free < NO_DISK:
            yield failed(name, found, "Make room: features of a slide take up to 1 GB.")
        elif free < LITTLE_DISK:
            yield doubtful(name, found, "Make room before many slides are encoded.")
        else:
            yield ok(name, found)


def names_of_devices() -> list[str]:
    """Every device that work can run on, the CPU first."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found += [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def described_devices() -> Iterator[Finding]:
    for name in names_of_devices():
        device = torch.device(name)
        encodes = devices.precision_name(devices.inference_precision(device))
        trains = devices.precision_name(devices.low_precision(device))
        yield ok(
            f"device {name}",
            f"{_described(device)}; encodes in {encodes}, trains in {trains}",
        )
    if not torch.cuda.is_available() and shutil.which("nvidia-smi"):
        built = torch.version.cuda
        yield doubtful(
            "device cuda",
            "there is an NVIDIA driver, but torch cannot use a GPU "
            + (f"(it is built for CUDA {built})" if built else "(built without CUDA)"),
            "Update the driver, or install torch for it: https://pytorch.org",
        )


def _described(device: torch.device) -> str:
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        return (
            f"{facts.name}, compute capability {facts.major}.{facts.minor}, "
            f"{total / _GB:.1f} GB, {free / _GB:.1f} GB free, CUDA "
            f"{torch.version.cuda or torch.version.hip}"
        )
    if device.type == "mps":
        usable = torch.mps.recommended_max_memory()
        return f"Apple GPU, {usable / _GB:.1f} GB usable, macOS {platform.mac_ver()[0]}"
    return f"{_processor()}, {cores()} cores, {torch.get_num_threads()} torch threads"


def _processor() -> str:
    if sys.platform.startswith("linux"):
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "processor"
