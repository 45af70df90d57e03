"""How fast a sample slide is painted and written, and in how much memory."""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from spt_core.sample import write_sample_slide

QUICK = 10.0  # Mpx/s, on two cores
SMALL = 1024.0  # MiB


def family(pid: int) -> list[int]:
    found = [pid]
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += family(int(child))
    except OSError:
        pass
    return found


def resident_mib(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds() -> float:
    used = [
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(size: int, workers: int, seed: int) -> dict:
    most, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.2):
            most = max(most, sum(resident_mib(p) for p in family(os.getpid())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "slide.tif"
        cpu, wall = cpu_seconds(), time.perf_counter()
        for _ in write_sample_slide(path, size=size, seed=seed, workers=workers):
            pass
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        megabytes = path.stat().st_size / 1e6
    done.set()
    watcher.join()
    pixels = size * size / 1e6
    return {
        "size": size,
        "seconds": wall,
        "cpu_seconds": cpu,
        "Mpx/s": pixels / wall,
        "Mpx/s of CPU time, two cores": 2 * pixels / cpu,
        "peak MiB, all processes": most,
        "file MB": megabytes,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16384, 60000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    results, good = [], True
    for size in args.sizes:
        found = measure(size, args.workers, args.seed)
        results.append(found)
        print(f"{size:,} px: {found['seconds']:.1f} s, {found['file MB']:.0f} MB")
        rate, memory = found["Mpx/s"], found["peak MiB, all processes"]
        cpu_rate = found["Mpx/s of CPU time, two cores"]
        print(f"{size:,} px: rate {rate:.1f} Mpx/s ({rate / QUICK:.2f} x the goal 10)")
        print(
            f"{size:,} px: by CPU time {cpu_rate:.1f} Mpx/s ({cpu_rate / QUICK:.2f} x)"
        )
        print(
            f"{size:,} px: memory {memory:.0f} MiB ({memory / SMALL:.2f} x the limit)"
        )
        good &= rate >= QUICK and memory < SMALL
    out = Path(__file__).parent / "results" / "sample_speed.json"
    out.parent.mkdir(exist_ok=True)
    facts = {
        "results": results,
        "seed": args.seed,
        "workers": args.workers,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
