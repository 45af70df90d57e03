"""``spt info``: what a slide file, a feature file or a folder of them holds."""

import argparse
from pathlib import Path
from typing import Any

from spt_core.commands.console import Console
from spt_core.slides import Slide, open_slide
from spt_core.tokens.describing import describe_features, feature_lines

_UNSTATED = "not stated by the file"
_HIDDEN = "hidden: they may identify the patient (--identifiers shows them)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "slide",
        metavar="SLIDE",
        help="slide file, or folder of an OME-Zarr or DICOM slide; also a feature file "
        "or a folder of them, of any tool",
    )
    parser.add_argument(
        "--identifiers",
        action="store_true",
        help="also print properties that may identify the patient",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    features = _features(Path(args.slide))
    if features:
        about = describe_features(features)
        console.record(about)
        for line in feature_lines(args.slide, about):
            console.say(line)
        return 1 if about["unreadable"] else 0
    slide = open_slide(args.slide)
    facts = slide_info(slide, identifiers=args.identifiers)
    console.record(facts)
    for line in _lines(facts):
        console.say(line)
    return 0


def _features(path: Path) -> list[Path]:
    """Feature files, where that is what is asked about."""
    from spt_core.tokens.finding import features_in, is_feature_file

    if is_feature_file(path):
        return [path]
    return features_in(path) if path.is_dir() else []


def slide_info(slide: Slide, *, identifiers: bool = False) -> dict[str, Any]:
    """Give all that a slide says of itself, as plain data, within the privacy rule."""
    return {
        "file": str(slide.path),
        "reader": slide.reader,
        "vendor": slide.properties.get("openslide.vendor"),
        "dimensions": list(slide.dimensions),
        "mpp_xy": None if slide.mpp_xy is None else list(slide.mpp_xy),
        "objective_power": slide.objective_power,
        "channels": [channel.name for channel in slide.channels],
        "bounds": list(slide.bounds),
        "levels": [
            {
                "dimensions": [level.width, level.height],
                "downsample": downsample,
                "chunk": list(array.chunksize[1::-1]),
                "made": level.is_made,
            }
            for level, downsample, array in zip(
                slide.levels, slide.level_downsamples, slide.pyramid, strict=True
            )
        ],
        "associated_images": sorted(slide.associated_images),
        "notes": list(slide.notes),
        "properties": slide.properties,
        "identifiers": slide.identifiers if identifiers else None,
    }


def _channels(names: list[str]) -> list[str]:
    listed = ", ".join(f"{number} {name}" for number, name in enumerate(names, 1))
    return [f"  channels      {listed}"] if names else []


def _lines(facts: dict[str, Any]) -> list[str]:
    width, height = facts["dimensions"]
    size = f"{width:,} × {height:,} pixels"
    if facts["mpp_xy"] is None:
        pixel = _UNSTATED
    else:
        um_x, um_y = facts["mpp_xy"]
        pixel = f"{um_x:g} × {um_y:g} µm"
        size += f", {width * um_x / 1000:.1f} × {height * um_y / 1000:.1f} mm"
    power = facts["objective_power"]
    x, y, w, h = facts["bounds"]
    lines = [
        facts["file"],
        f"  format        {facts['vendor'] or 'array'}, read by {facts['reader']}",
        f"  size          {size}",
        f"  pixel         {pixel}",
        f"  objective     {_UNSTATED if power is None else f'{power:g}x'}",
        *_channels(facts["channels"]),
        f"  scanned part  x {x:,}, y {y:,}, {w:,} × {h:,}",
        "  levels",
    ]
    for i, level in enumerate(facts["levels"]):
        w, h = level["dimensions"]
        made = ", made as needed" if level["made"] else ""
        lines.append(f"    {i}  {w:,} × {h:,}  (1 : {level['downsample']:.4g}{made})")
    images = ", ".join(facts["associated_images"]) or "none"
    lines.append(f"  images        {images}")
    lines += [f"  note          {note}" for note in facts["notes"]]
    lines.append("  properties")
    lines += [f"    {k} = {v}" for k, v in sorted(facts["properties"].items())]
    if facts["identifiers"] is None:
        lines.append(f"  all others    {_HIDDEN}")
    else:
        lines.append("  all others")
        lines += [f"    {k} = {v}" for k, v in sorted(facts["identifiers"].items())]
    return lines
