"""How every benchmark speaks: one line a figure, and a JSON with versions and seeds."""

import json
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("napari-spt", "napari", "numpy", "dask", "openslide-python", "torch")


class Figures:
    """Collects a topic's figures; ``save`` writes them with what they came from."""

    def __init__(self, topic: str, **settings) -> None:
        self.topic = topic
        self.settings = settings
        self.figures: list[dict] = []

    def add(self, name: str, value: float, unit: str = "", *, goal: str = "") -> None:
        self.figures.append({"name": name, "value": value, "unit": unit, "goal": goal})
        target = f"   (goal: {goal})" if goal else ""
        print(f"{self.topic}: {name} = {value:.4g} {unit}{target}".rstrip(), flush=True)

    def save(self) -> Path:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.topic}.json"
        record = {
            "topic": self.topic,
            "when": time.strftime("%Y-%m-%d"),
            "settings": self.settings,
            "versions": {"python": platform.python_version(), **_versions()},
            "figures": self.figures,
        }
        path.write_text(json.dumps(record, indent=2, default=str), encoding="utf-8")
        return path


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
