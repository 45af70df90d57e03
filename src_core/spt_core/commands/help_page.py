"""How ``spt COMMAND --help`` looks, and what is said of a mistyped command."""

import argparse
import textwrap
from collections.abc import Sequence
from typing import NoReturn

# Two or three lines that work as they stand, of commands whose names say not all.
EXAMPLES: dict[str, Sequence[str]] = {
    "sample": ("spt sample cohort --slides 12 --size 4096",),
    "info": ("spt info slide.svs", "spt info features/"),
    "encoders": ("spt encoders", "spt encoders get h-optimus-0"),
    "train-patches": (
        "spt train-patches slides/ --method simclr --out encoder.safetensors",
    ),
    "encode": (
        "spt encode slides/ --out features/",
        "spt encode slides/ --out features/ --slide-mpp 0.25  # where files state none",
    ),
    "convert": ("spt convert trident-features/ --out features/ --mpp 0.5",),
    "train": (
        "spt train features/ --objective simclr --out pretrained/",
        "spt train features/ --objective classify --labels labels.csv --out run/",
        "spt train --resume run/",
    ),
    "add-site": ("spt add-site run/best.safetensors lyon lyon-features/",),
    "evaluate": (
        "spt evaluate pretrained/best.safetensors features/ --labels labels.csv "
        "--out report/",
        "spt evaluate mean features/ --labels labels.csv --out report/",
    ),
    "benchmark": (
        "spt benchmark features/ --labels labels.csv --out comparison/",
        "spt benchmark features/ --labels labels.csv --plan",
    ),
    "study": (
        "spt study lung/ --slides slides/ --labels labels.csv --check",
        "spt study lung/ --slides slides/ --labels labels.csv --goal both",
        "spt study lung/   # goes on with it",
    ),
    "embed": ("spt embed features/ --model mean --out embeddings.csv",),
    "predict": (
        "spt predict slide.svs",
        "spt predict run/best.safetensors slides/ --out answers.csv",
    ),
    "heatmap": (
        "spt heatmap run/best.safetensors slide.svs --out map.geojson report.html",
    ),
    "doctor": ("spt doctor",),
}


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong in one line, not below a page of options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See '{self.prog} --help'.\n")


class HelpPage(argparse.HelpFormatter):
    """Wraps paragraphs, and leaves indented ones as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if part.startswith("  ") else textwrap.fill(part, width)
            for part in text.split("\n\n")
        )


def describe(parser: argparse.ArgumentParser, name: str, says: str) -> None:
    """Below the usage: what the command does, and how it is used."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
    parser.description = f"{says[0].upper()}{says[1:]}.\n\n{lines}"
