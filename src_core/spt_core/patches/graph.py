"""The same encoder by ONNX Runtime, which is quicker on many CPUs.

A graph is made from the weights the first time that a CPU is to encode a slide of many
patches, and kept by the encoder's hash. It is used only where it was seen to
give the same features and to be quicker than torch on this computer; elsewhere torch
runs. The last digits of the two differ, so a slide is encoded by one of them from its
first patch to its last, and which one depends on that slide alone.
"""

import copy
import hashlib
import json
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spt_core.files import written_whole
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.store import encoders_folder
from spt_core.plain_data import json_of

log = logging.getLogger(__name__)

# Set to 0 to keep to torch.
SWITCH = "NAPARI_SPT_ONNX"
# Of the cosine between torch's features and the graph's, the least.
SAME = 0.9999
# The least gain for which a second way to compute the same is worth having.
_GAIN = 1.05
# Of a slide: smaller ones are done sooner than a graph is made, which takes seconds.
FEWEST_PATCHES = 512
_FEWEST_WEIGHTS = 10**6  # smaller networks are not worth the seconds of making it
_MOST_BYTES = 1_500_000_000  # a graph is one file, of 2 GB at most
_OPSET = 17
_PROBES = 4


class Graph:
    """A network in ONNX Runtime: (b, 3, s, s) float32 in, what the module gives out."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._sessions: dict[int, Any] = {}
        self._lock = Lock()

    def __call__(self, pixels: Tensor) -> Tensor:
        session = self._session(torch.get_num_threads())
        (out,) = session.run(None, {"pixels": pixels.contiguous().numpy()})
        return torch.from_numpy(out)

    def _session(self, threads: int) -> Any:
        """One that computes with as many threads as torch would in this lane."""
        with self._lock:
            if threads not in self._sessions:
                import onnxruntime

                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = threads
                options.inter_op_num_threads = 1
                # Lanes wait for batches: threads that spin meanwhile take their cores.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                options.log_severity_level = 3
                self._sessions[threads] = onnxruntime.InferenceSession(
                    self._content, options, providers=["CPUExecutionProvider"]
                )
            return self._sessions[threads]


class GraphKeeper:
    """Finds, or makes when it pays, the graph of one encoder."""

    def __init__(self, module: nn.Module, card: EncoderCard, sha256: str) -> None:
        self._module, self._card = module, card
        self._path = encoders_folder() / "graphs" / f"{sha256}.onnx"
        self.graph: Graph | None = None
        self._lock = Lock()
        self._is_decided = not _is_worth_it(module)

    def for_slide(self, patches: int) -> Graph | None:
        """What encodes a slide of so many patches; None is torch."""
        if patches < FEWEST_PATCHES:
            return None
        with self._lock:
            if not self._is_decided:
                self._is_decided = True
                self.graph = self._found_or_made()
        return self.graph

    def _found_or_made(self) -> Graph | None:
        kept = _kept(self._path)
        if kept is not None:
            return kept or None
        try:
            return _make(self._module, self._card, self._path)
        # Not every network can be exported, nor every folder written: torch remains.
        except Exception as error:  # noqa: BLE001
            log.info("%s runs by torch: no graph of it (%s)", self._card.name, error)
            return None


def _is_worth_it(module: nn.Module) -> bool:
    if os.environ.get(SWITCH) == "0" or find_spec("onnxruntime") is None:
        return False
    weights = [p for p in module.state_dict().values() if p.is_floating_point()]
    return (
        sum(p.numel() for p in weights) >= _FEWEST_WEIGHTS
        and sum(p.nbytes for p in weights) <= _MOST_BYTES
    )


def _kept(path: Path) -> Graph | Literal[False] | None:
    """A graph of an earlier run; False where torch was quicker, None where none is."""
    try:
        facts = json_of(path.with_suffix(".json"))
        if (
            facts["runtime"] != version("onnxruntime")
            or facts["torch"] != torch.__version__
        ):
            return None
        if not facts["quicker"]:
            return False
        content = path.read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    graph = Graph(content)
    if graph.sha256 != facts["sha256"]:
        log.warning("%s is not what was written there: it is made again", path)
        return None
    return graph


def _make(module: nn.Module, card: EncoderCard, path: Path) -> Graph | None:
    side = card.input_size or 128
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(_PROBES, 3, side, side, generator=generator)
    with written_whole(path) as temporary:
        export(module, probe, temporary, any_size=card.input_size is None)
    graph = Graph(path.read_bytes())
    with torch.inference_mode():
        want, have = module(probe).flatten(1), graph(probe).flatten(1)
        same = float(torch.cosine_similarity(want, have).min())
        gain = _gain(lambda: module(probe), lambda: graph(probe))
    log.info("%s: cosine %.6f, %.2f times torch's speed", card.name, same, gain)
    # Where another process has decided meanwhile, both abide by that.
    if (kept := _kept(path)) is not None:
        return kept or None
    facts = {
        "runtime": version("onnxruntime"),
        "torch": torch.__version__,
        "sha256": graph.sha256,
        "cosine": same,
        "gain": gain,
        "quicker": same >= SAME and gain >= _GAIN,
    }
    with written_whole(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(facts), "utf-8")
    if facts["quicker"]:
        return graph
    path.unlink(missing_ok=True)
    return None


def export(module: nn.Module, probe: Tensor, path: Path, *, any_size: bool) -> None:
    """Write a module as a graph for any number of patches, and any size where asked."""
    plain = copy.deepcopy(module).to(memory_format=torch.contiguous_format)
    free = {0: "b", 2: "h", 3: "w"} if any_size else {0: "b"}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # about what the exporter will be one day
        torch.onnx.export(
            plain,
            (probe,),
            str(path),
            input_names=["pixels"],
            output_names=["features"],
            dynamic_axes={"pixels": free, "features": {0: "b"}},
            opset_version=_OPSET,
            dynamo=False,
        )


def _gain(one: Callable[[], object], other: Callable[[], object]) -> float:
    """How many times as quick the other is, in turns."""
    rates = []
    for _ in range(4):
        start = time.perf_counter()
        one()
        middle = time.perf_counter()
        other()
        rates.append((middle - start) / max(1e-9, time.perf_counter() - middle))
    return statistics.median(rates[1:])
