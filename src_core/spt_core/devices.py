"""The one place that knows devices: choosing one, precision, copies, lack of memory."""

import errno
import gc
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch

from spt_core.errors import InputError
from spt_core.precision import PRECISIONS

Result = TypeVar("Result")
log = logging.getLogger(__name__)

GIB = 2**30
# On a CPU running out of memory is being killed, not an error to catch, and other
# programs live there too: so a fixed, modest share.
CPU_WORKING_BYTES = int(1.75 * GIB)
WORKING_SHARE = 0.6
# Metal ends the process that makes an array of so many bytes.
MPS_ARRAY_BYTES = 2**32
# A GPU of at least this compute capability is faster in float16; of those before, only
# 6.0 is.
_FAST_FLOAT16 = (7, 0)
# Training gains from one more thread for every so many weights; with fewer, threads
# mostly wait for one another. Where they spin while they wait, as they do unless told
# otherwise, they take the time of the thread that is waited for: beside other programs
# two threads were two to six times slower than one. Where they sleep, they were not
# (benchmarks/training_threads.py).
_WEIGHTS_PER_SLEEPING_THREAD = 250_000
_WEIGHTS_PER_SPINNING_THREAD = 2_000_000
_lowered_from: list[int] = []  # torch's threads before training took fewer


def choose_device(wanted: str = "auto") -> torch.device:
    """The device to use: the one asked for, or the best there is."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise InputError(
            f"There is no device {wanted!r}. Use auto, cpu, cuda, cuda:1 or mps."
        ) from None
    missing = {
        "cuda": not torch.cuda.is_available(),
        "mps": not torch.backends.mps.is_available(),
    }
    if device.type not in ("cpu", *missing) or missing.get(device.type, False):
        raise InputError(
            f"The device {wanted} is not available on this computer. Use --device auto."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"There is no {wanted}: this computer has {torch.cuda.device_count()} GPUs."
        )
    return device


def own_gpu(wanted: str, worker: int) -> str:
    """The device of one of several processes on this computer, by its number.

    With several GPUs each process has its own; more processes than GPUs take turns.
    """
    device = choose_device(wanted)
    if device.type != "cuda" or device.index is not None:
        return wanted
    return f"cuda:{worker % torch.cuda.device_count()}"


def low_precision(device: torch.device) -> torch.dtype | None:
    """The precision that mixed precision uses there; None where it does not pay."""
    if device.type != "cuda":
        return None
    # GPUs before Ampere emulate bfloat16, slowly; float16 they have.
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16


def autocast(device: torch.device, *, mixed: bool = True) -> AbstractContextManager:
    """Mixed precision where the device gains from it."""
    return cast_to(device, low_precision(device) if mixed else None)


def cast_to(
    device: torch.device, precision: torch.dtype | None
) -> AbstractContextManager:
    """Compute in a lower precision where one is given."""
    if precision is None:
        return nullcontext()
    return torch.autocast(device.type, dtype=precision)


def full_precision(device: torch.device) -> AbstractContextManager:
    """Compute in float32 even within mixed precision."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def inference_precision(
    device: torch.device, wanted: str = "auto"
) -> torch.dtype | None:
    """The precision in which an encoder runs; None is float32.

    ``auto`` is float16 where the GPU is faster in it. It is closer to float32 than
    bfloat16 is: in one comparison a token differed by 1.1 to 1.5 %, against 8 %.
    """
    if wanted == "float32":
        return None
    if wanted == "auto":
        if device.type != "cuda":
            return None
        capability = torch.cuda.get_device_capability(device)
        fast = capability >= _FAST_FLOAT16 or capability == (6, 0)
        return torch.float16 if fast else None
    if wanted not in PRECISIONS:
        raise InputError(
            f"There is no precision {wanted!r}. Use {', '.join(PRECISIONS)}."
        )
    able = {
        "float16": device.type in ("cuda", "mps"),
        "bfloat16": device.type == "cpu"
        or (device.type == "cuda" and torch.cuda.is_bf16_supported()),
    }
    if not able[wanted]:
        raise InputError(
            f"The device {device} does not compute in {wanted}. Use --precision auto."
        )
    return torch.float16 if wanted == "float16" else torch.bfloat16


def precision_name(precision: torch.dtype | None) -> str:
    return str(precision or torch.float32).removeprefix("torch.")


@contextmanager
def fixed_shapes(device: torch.device) -> Iterator[None]:
    """Let cuDNN try its algorithms once for each shape and keep the fastest.

    For work whose shapes do not change: every new shape is tried out anew, which takes
    longer than a batch of a slide's last few patches.
    """
    before = torch.backends.cudnn.benchmark
    if device.type == "cuda" and not torch.are_deterministic_algorithms_enabled():
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def gradient_scaler(
    device: torch.device, *, mixed: bool = True
) -> torch.amp.GradScaler | None:
    """Needed with float16 gradients alone."""
    if mixed and low_precision(device) is torch.float16:
        return torch.amp.GradScaler(device.type)
    return None


def ready_to_copy(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Pin the memory of what will be copied to a GPU, so that the copy can overlap."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def copy_to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy to the device, not waiting where the memory is pinned.

    Double precision becomes single: some tools store it, MPS has none.
    """
    if tensor.dtype is torch.float64:
        tensor = tensor.float()
    return tensor.to(device, non_blocking=True)


def working_bytes(device: torch.device) -> int:
    """How much memory one piece of work may take on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * WORKING_SHARE)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() * WORKING_SHARE)
    return CPU_WORKING_BYTES


def attention_rows(device: torch.device, heads: int, tokens: int) -> int:
    """How many tokens may look at all ``tokens`` at once; all of them but on MPS.

    Metal forms the scores (heads, rows, tokens), in float32, as one array.

    Parameters
    ----------
    heads
        Of all slides of the batch together.
    """
    if device.type != "mps":
        return tokens
    most = min(MPS_ARRAY_BYTES - 1, working_bytes(device) // 2)
    return max(1, min(tokens, most // (4 * heads * tokens)))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device, or the computer, has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        words in text
        for words in ("out of memory", "can't allocate memory", "not enough memory")
    )


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, of whichever kind, comes of too little memory."""
    if is_out_of_memory(error):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # Python's own: there was no room for the error, or for a thread's stack.
    text = str(error)
    if isinstance(error, SystemError):
        return "without setting an exception" in text or "without exception set" in text
    return isinstance(error, RuntimeError) and "start new thread" in text


def with_back_off(
    work: Callable[[int], Result],
    size: int,
    *,
    smallest: int = 1,
    on_smaller: Callable[[], None] | None = None,
) -> tuple[Result, int]:
    """Do ``work(size)``, halving ``size`` as long as memory does not suffice.

    Parameters
    ----------
    on_smaller
        Called each time before a smaller size is tried.

    Returns
    -------
    The result, and the size that worked, to begin with next time.
    """
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size <= smallest:
                raise
            log.info("Out of memory at size %d.", size)
        if on_smaller is not None:
            on_smaller()
        # Outside of the handler: the traceback held the failed attempt's memory.
        size = max(smallest, size // 2)
        free_memory()


def free_memory() -> None:
    """Give back what failed work held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def usual_batch(device: torch.device) -> int:
    """How many patches an encoder is given at once."""
    return 32 if device.type == "cpu" else 256


def usual_lanes(device: torch.device) -> tuple[int, int]:
    """Threads that run an encoder side by side, and torch's own threads in each.

    On a CPU lanes of one thread wait for nobody, where the threads of one operation
    wait for the slowest; on a GPU one lane copies while the other computes, where
    each has a queue of its own (:func:`own_stream`).
    """
    if device.type != "cpu":
        return 2 if device.type == "cuda" else 1, torch.get_num_threads()
    cores = os.cpu_count() or 1
    lanes = min(cores, 8)
    return lanes, max(1, cores // lanes)


@contextmanager
def threads_kept(device: torch.device) -> Iterator[None]:
    """Put torch's number of threads back after threads started here have changed it.

    The calling thread's own number stays as it is all the while.
    """
    before = torch.get_num_threads()
    try:
        yield
    finally:
        if device.type == "cpu":
            torch.set_num_threads(before)


def use_threads(device: torch.device, count: int) -> None:
    """Set how many threads torch uses for what the calling thread does."""
    if device.type == "cpu":
        torch.set_num_threads(count)


def training_threads(weights: int) -> int:
    """Threads that training a model of so many weights gains from, on a CPU.

    Never more than torch has now, so that whoever chose a number keeps it.
    """
    sleeping = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    each = _WEIGHTS_PER_SLEEPING_THREAD if sleeping else _WEIGHTS_PER_SPINNING_THREAD
    return max(1, min(torch.get_num_threads(), weights // each))


@contextmanager
def useful_threads(device: torch.device, weights: int) -> Iterator[None]:
    """Train a model of so many weights with the threads that it gains from."""
    _lowered_from.append(torch.get_num_threads())
    try:
        with threads_kept(device):
            use_threads(device, training_threads(weights))
            yield
    finally:
        _lowered_from.pop()


@contextmanager
def all_threads(device: torch.device) -> Iterator[None]:
    """Use every thread even inside :func:`useful_threads`, for larger work there."""
    with threads_kept(device):
        if _lowered_from:
            use_threads(device, _lowered_from[0])
        yield


def own_stream(device: torch.device) -> AbstractContextManager:
    """A queue of work on the device for the calling thread alone."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))
