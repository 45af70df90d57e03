"""Memory does not grow with the slide: 4,000 and 40,000 patches, a process each."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _big_slide import big_slide
from _figures import Figures

PATCH = 128
# The highest memory of a process of its own, as the system counts it.
RUN = """
import json, sys, pathlib
import psutil, threading, time
from spt_core.patches import EncodeSettings, encode_slides, slide_tasks, SlideResult

highest = [0]
def watch():
    me = psutil.Process()
    while True:
        highest[0] = max(highest[0], me.memory_info().rss)
        time.sleep(0.01)

settings = EncodeSettings(encoder="small-random", patch_size=int(sys.argv[3]),
                          target_mpp=0.5, min_tissue=0.0, device="cpu")
tasks = slide_tasks([pathlib.Path(sys.argv[1])], pathlib.Path(sys.argv[2]))
threading.Thread(target=watch, daemon=True).start()
for event in encode_slides(tasks, settings):
    if isinstance(event, SlideResult):
        print(json.dumps({"patches": event.patches, "bytes": highest[0],
                          "reason": event.reason}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=Path, help="keep the made slides here")
    args = parser.parse_args()
    figures = Figures("encode_memory", patch_size=PATCH)
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.slides or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for across in (64, 200):
            slide = big_slide(folder / f"memory{across}.svs", across * PATCH)
            out = Path(temporary) / f"out{across}"
            command = [sys.executable, "-c", RUN, slide, out, str(PATCH)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            answer = json.loads(done.stdout)
            if not answer["patches"]:
                raise RuntimeError(answer["reason"])
            found.append(answer)
            name = f"{answer['patches']} patches, highest memory"
            figures.add(name, answer["bytes"] / 2**20, "MiB")
    ratio = found[1]["bytes"] / found[0]["bytes"]
    figures.add("40,000 over 4,000 patches", ratio, goal="within 10 %")
    figures.save()


if __name__ == "__main__":
    main()
