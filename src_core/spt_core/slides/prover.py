"""The helper process: opens slides that nobody has opened here, and reads a little.

Run as a script, with openslide alone, so that it starts quickly. Damaged files take
openslide down, and this process with it, instead of the one that asked.
"""

import json
import sys

_MOST_BYTES = 8 * 2**30
_SIDE = 64
_OVERVIEW_PIXELS, _PIECE = 2**23, 1024
_PLAIN_TIFF_MAKERS = ("aperio", "generic-tiff")


def main() -> None:
    import openslide

    _limit_memory()
    for line in sys.stdin:
        asked = json.loads(line)
        found = None
        try:
            if asked["do"] == "series":
                with openslide.OpenSlide(asked["path"]) as slide:
                    found = slide.properties.get("dicom.SeriesInstanceUID")
            elif openslide.OpenSlide.detect_format(asked["path"]) is not None:
                _read_a_little(openslide.OpenSlide(asked["path"]))
        # What is wrong is said by whoever opens it in earnest; here it only must not
        # end the process.
        except Exception:  # noqa: BLE001
            pass
        _say({"done": found})


def _read_a_little(slide) -> None:  # type: ignore[no-untyped-def]
    with slide:
        _say({"beat": 1})
        width, height = slide.dimensions
        for level in range(slide.level_count):
            places = ((0, 0), (width // 2, height // 2), (width - 1, height - 1))
            for place in places:
                slide.read_region(place, level, (_SIDE, _SIDE))
                _say({"beat": 1})
        _read_all(slide, slide.level_count - 1)


def _read_all(slide, level) -> None:  # type: ignore[no-untyped-def]
    """What the window and tissue finding see first, where it is not large.

    Tiles of plain TIFFs are not decoded by openslide, so it is not asked for them.
    """
    if slide.properties.get("openslide.vendor") in _PLAIN_TIFF_MAKERS:
        return
    width, height = slide.level_dimensions[level]
    if width * height > _OVERVIEW_PIXELS:
        return
    scale = slide.level_downsamples[level]
    for y in range(0, height, _PIECE):
        for x in range(0, width, _PIECE):
            place = round(x * scale), round(y * scale)
            slide.read_region(place, level, (_PIECE, _PIECE))
            _say({"beat": 1})


def _say(what: dict) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


if __name__ == "__main__":
    main()
