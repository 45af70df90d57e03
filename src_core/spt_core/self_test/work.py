"""Whether the work itself runs: a made slide, encoded and learned from on a device."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
import torch

from spt_core import bundled, devices
from spt_core.learning.aggregators import build_encoder
from spt_core.patches.encode import encode_slide
from spt_core.patches.settings import EncodeSettings
from spt_core.self_test.finding import (
    Finding,
    Status,
    doubtful,
    failed,
    in_one_line,
    ok,
)
from spt_core.slides import open_slide
from spt_core.tokens import read_tokens
from spt_core.training.objectives import build_objective

SLIDE, REFERENCE = "made.tif", "cpu"
_WIDTH, _HEIGHT, _MPP = 1800, 1500, 0.5
# How far a token may lie from the CPU's, as a share of its length: float32 differs by
# the order of sums, float16 by 1.1 to 1.5 % in one comparison.
_NEAR, _FAR = {"float32": 1e-3, "float16": 0.04, "bfloat16": 0.12}, 0.2
# How alike the direction of a gradient must be to the CPU's.
_ALIKE, _UNLIKE = {"float32": 0.999, "float16": 0.98, "bfloat16": 0.95}, 0.8
_REPORT = "Report it with these lines; until then work with --device cpu."


def make_slide(folder: Path) -> Path:
    """A small slide: textured tissue on glass, as a tiled pyramid."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:_HEIGHT, :_WIDTH].astype(np.float32)
    inside = np.hypot(x / _WIDTH - 0.5, y / _HEIGHT - 0.5) < 0.45
    coarse = rng.normal(size=(_HEIGHT // 10, _WIDTH // 10)).astype(np.float32)
    texture = np.kron(coarse, np.ones((10, 10), np.float32))
    od = inside * np.clip(0.5 + 0.2 * texture, 0, 2)
    rgb = np.array([238, 226, 236]) * np.exp(-od[..., None] * (0.35, 0.95, 0.45))
    rgb += rng.normal(0, 1, (_HEIGHT, _WIDTH, 1))
    pixels = np.clip(rgb, 0, 255).astype(np.uint8)
    path = folder / SLIDE
    with tifffile.TiffWriter(path) as tiff:
        for level in range(2):
            tiff.write(
                pixels[:: level + 1, :: level + 1],
                tile=(256, 256),
                compression="jpeg",
                photometric="rgb",
                subfiletype=level,
                resolution=(1e4 / _MPP, 1e4 / _MPP),
                resolutionunit="CENTIMETER",
                metadata=None,
            )
    return path


def slides(folder: Path) -> Iterator[Finding]:
    """Whether a slide is opened and read, and by what."""
    try:
        slide = open_slide(make_slide(folder))
        pixels = slide.read(0, 600, 500, 300, 300)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        yield failed("slides", in_one_line(error), "Install openslide-bin again.")
        return
    found = f"{slide.dimensions[0]} x {slide.dimensions[1]} px, {slide.mpp:g} um per px"
    if slide.reader != "openslide":
        yield doubtful(
            "slides",
            f"{found}, read by {slide.reader}, not by openslide",
            "Install openslide-bin again: some formats need it.",
        )
    elif not 100 < float(pixels.mean()) < 250:
        yield failed("slides", f"{found}, read wrongly", "Install openslide-bin again.")
    else:
        yield ok("slides", f"{found}, read by openslide")


def work_on(name: str, folder: Path) -> list[Finding]:
    """Encode the made slide and take a training step on a device."""
    return [*encoding_on(name, folder), *training_on(name)]


def encoding_on(name: str, folder: Path) -> Iterator[Finding]:
    check = f"encode on {name}"
    settings = EncodeSettings(encoder=bundled.ENCODER, device=name)
    precision = devices.precision_name(devices.inference_precision(torch.device(name)))
    out = folder / name.replace(":", "-")
    start = time.perf_counter()
    try:
        events = encode_slide(folder / SLIDE, out, settings)
        with closing(events):
            for _ in events:
                pass
        x = read_tokens(out / "made.h5").x
        reference = read_tokens(folder / REFERENCE / "made.h5").x
    except Exception as error:  # noqa: BLE001
        yield failed(check, in_one_line(error), _REPORT)
        return
    seconds = time.perf_counter() - start
    found = f"{len(x)} patches in {seconds:.1f} s, {precision}"
    if name == REFERENCE:
        whole = len(x) > 0 and bool(np.isfinite(x).all())
        yield ok(check, found) if whole else failed(check, f"{found}, NaN", _REPORT)
        return
    yield compared(check, found, x, reference, precision)


def compared(
    check: str, found: str, x: np.ndarray, reference: np.ndarray, precision: str
) -> Finding:
    """Judge a device's tokens (n, d) by the CPU's."""
    if x.shape != reference.shape or not np.isfinite(x).all():
        return failed(check, f"{found}; not the patches of the CPU, or NaN", _REPORT)
    length = np.maximum(np.linalg.norm(reference, axis=1), 1e-12)
    away = float(np.median(np.linalg.norm(x - reference, axis=1) / length))
    found = f"{found}; tokens differ from the CPU's by {away:.2%}"
    if away <= _NEAR[precision]:
        return ok(check, found)
    return Finding(
        check,
        Status.DOUBTFUL if away <= _FAR else Status.FAILED,
        found,
        f"Encode with --precision float32. {_REPORT}",
    )


def training_on(name: str) -> Iterator[Finding]:
    check, device = f"training step on {name}", torch.device(name)
    precision = devices.precision_name(devices.low_precision(device))
    start = time.perf_counter()
    try:
        step = one_step(device)
        seconds = time.perf_counter() - start
        reference = one_step(torch.device("cpu"))
    except Exception as error:  # noqa: BLE001
        yield failed(check, in_one_line(error), _REPORT)
        return
    yield judged_step(check, step, reference, precision, seconds)


@dataclass(frozen=True)
class StepResult:
    """Loss and gradient of a training step, and the loss after it."""

    loss: float
    gradient: torch.Tensor
    after: float


def judged_step(
    check: str, step: StepResult, reference: StepResult, precision: str, seconds: float
) -> Finding:
    """Judge a device's training step by the CPU's."""
    cosine = float(torch.cosine_similarity(step.gradient, reference.gradient, dim=0))
    found = (
        f"loss {step.loss:.4f}, then {step.after:.4f} (the CPU: {reference.loss:.4f}), "
        f"gradients alike by {cosine:.4f}, {precision}, {seconds:.1f} s"
    )
    near = abs(step.loss - reference.loss) <= 0.05 * reference.loss
    if not (near and step.after < step.loss and cosine >= _UNLIKE):
        return failed(check, found, _REPORT)
    if cosine < _ALIKE[precision]:
        return doubtful(check, found, f"Train with --full-precision. {_REPORT}")
    return ok(check, found)


def one_step(device: torch.device) -> StepResult:
    """A step of a small model on made tokens: a function of the device alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = build_encoder("small", 64, dim=48, heads=3)
        objective = build_objective("simclr", encoder)
        x = torch.randn(16, 20, 64)
        p = torch.randint(0, 40, (16, 20, 2))
    encoder, objective = encoder.to(device), objective.to(device)
    x, p = x.to(device), p.to(device)

    def loss() -> torch.Tensor:
        with devices.autocast(device):
            h = encoder(x, p)
        return objective(h.float().unflatten(0, (2, 8)))["loss"]

    before = loss()
    before.backward()
    weights = [w for w in encoder.parameters() if w.grad is not None]
    flat = torch.cat([w.grad.flatten() for w in weights if w.grad is not None])
    with torch.no_grad():
        for weight in weights:
            if weight.grad is not None:  # a short way down
                weight.sub_(0.1 * weight.grad / flat.norm())
        after = loss()
    return StepResult(float(before.detach()), flat.float().cpu(), float(after))
