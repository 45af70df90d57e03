"""What files say of their channels: names, colours, and the range to show.

A file's channels are of dyes, or they are the red, green and blue of a picture.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RGB = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
_RGB_NAMES = ({"r", "red"}, {"g", "green"}, {"b", "blue"})


@dataclass(frozen=True)
class ChannelFacts:
    """One channel as its file describes it; None where it does not say."""

    name: str | None = None
    colour: tuple[int, int, int] | None = None
    limits: tuple[float, float] | None = None


def are_colours(facts: Sequence[ChannelFacts]) -> bool:
    """Whether channels are the red, green and blue of one picture."""
    if len(facts) != 3:
        return False
    colours = tuple(one.colour for one in facts)
    if None not in colours:
        return colours == RGB
    names = [(one.name or "").strip().lower() for one in facts]
    if any(names):
        return all(
            name in known or re.fullmatch(r"(channel)?[ :0-9]*", name)
            for name, known in zip(names, _RGB_NAMES, strict=True)
        )
    return True


def srh_channels(facts: Sequence[ChannelFacts]) -> tuple[int, int] | None:
    """Numbers of CH2 and CH3 of stimulated Raman histology, by their names."""
    names = [re.sub(r"[^a-z0-9]", "", (one.name or "").lower()) for one in facts]
    if sorted(names) != ["ch2", "ch3"]:
        return None
    return names.index("ch2"), names.index("ch3")


def from_ome_xml(xml: str) -> list[ChannelFacts]:
    """Channels of an OME-TIFF; a channel of several samples is RGB, and none."""
    pixels = ElementTree.fromstring(xml).find(".//{*}Pixels")
    if pixels is None:
        return []
    channels = pixels.findall("{*}Channel")
    if any(int(one.get("SamplesPerPixel", "1")) > 1 for one in channels):
        return []
    found = []
    for one in channels:
        colour = one.get("Color")
        packed = None if colour is None else int(colour) & 0xFFFFFFFF
        rgb = (
            None
            if packed is None
            else (packed >> 24, packed >> 16 & 255, packed >> 8 & 255)
        )
        found.append(ChannelFacts(one.get("Name") or one.get("Fluor"), rgb))
    return found


def from_omero(channels: Sequence[Mapping[str, Any]]) -> list[ChannelFacts]:
    """Channels of an OME-Zarr, as its ``omero`` part describes them."""
    found = []
    for one in channels:
        window = one.get("window") or {}
        limits = None
        if "start" in window and "end" in window and window["end"] > window["start"]:
            limits = (float(window["start"]), float(window["end"]))
        found.append(
            ChannelFacts(one.get("label"), _hex_colour(one.get("color")), limits)
        )
    return found


def from_qptiff(descriptions: Sequence[str]) -> list[ChannelFacts]:
    """Channels of a QPTIFF, each described by the XML of its own page."""
    found = []
    for text in descriptions:
        try:
            root = ElementTree.fromstring(text.encode("utf-16"))
        except ElementTree.ParseError:
            found.append(ChannelFacts())
            continue
        name = root.findtext("Biomarker") or root.findtext("Name")
        parts = [p for p in (root.findtext("Color") or "").split(",") if p.strip()]
        colour = None
        if len(parts) == 3:
            red, green, blue = (min(255, max(0, round(float(p)))) for p in parts)
            colour = (red, green, blue)
        found.append(ChannelFacts(name, colour))
    return found


def _hex_colour(text: str | None) -> tuple[int, int, int] | None:
    text = (text or "").lstrip("#")[:6]
    if not re.fullmatch("[0-9a-fA-F]{6}", text):
        return None
    return int(text[:2], 16), int(text[2:4], 16), int(text[4:6], 16)
