"""Where the tissue of a slide lies, learned from the slide itself.

On a bright slide the glass is what is smooth: its colour may be white, grey or pink and
drift across the slide, but its texture is that of the scanner's noise, while tissue has
structure at every scale. So the glass is found first, by its smoothness; its colour and
noise are measured where it is; and tissue is what is both rougher than the glass and
stained against the glass around it. On a dark slide (fluorescence, Raman) tissue is
what is brighter than the darkest part. A picture is dark by its brightness; channels
are stretched to any brightness, and dark where what is smooth is darker than the rest.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from spt_core.slides.overview import Overview, brightest, darkest, read_overview
from spt_core.slides.slide import Slide
from spt_core.slides.slide_errors import UnreadableSlideError
from spt_core.slides.tissue_mask import Mask, Tissue

Floats = NDArray[np.float32]

# Below this brightness (of 255, the 75th percentile) a slide is a dark-field image.
_DARK = 80
# Pixels: the width of the windows in which texture is measured.
_WINDOW = 2.0
# Optical density: glass is never rougher than this, nor darker, nor more coloured.
_ROUGHEST_GLASS = 0.03
_FLAT = 2e-4
_DARKEST_GLASS = 0.6
_MOST_COLOURED_GLASS = 0.35
# Below this share of smooth pixels a slide shows no glass at all.
_LEAST_GLASS = 0.003
_UM_GLASS_DRIFT = 1500.0
# Stained at least this much (optical density against the glass) where also rough ...
_FAINT = 0.02
# ... and this much where smooth: mucus, colloid, cartilage; not eosin on the glass.
_STRONG = 0.3
# ... and at least this share of the strongest stain within this many pixels: beside a
# strong edge JPEG's ringing is stained and rough too.
_RINGING = 0.15
_RINGING_REACH = 6
# Colour over darkness: dust, bubbles and black pen are grey.
_GREY = 0.2
_UM_CLOSE = 20.0
_UM_SMALLEST_HOLE = 300.0
_UM_SMALLEST_PIECE = 120.0


def find_tissue(slide: Slide) -> Tissue:
    """Find the tissue of a slide; takes about a second.

    Raises
    ------
    UnreadableSlideError
        Where nothing of it can be decoded.
    """
    overview = read_overview(slide)
    notes = []
    if overview.unreadable.all():
        raise UnreadableSlideError(
            f"{slide.title}: no part of it can be decoded. Copy it again from where it "
            "came from."
        )
    if overview.unreadable.any():
        notes.append(
            f"{overview.unreadable.mean():.1%} of the slide cannot be decoded and is "
            "taken for empty."
        )
    mask = tissue_mask(overview, has_channels=slide.scaling is not None)
    return Tissue(mask, overview.l0_scale_xy, tuple(notes))


def tissue_mask(overview: Overview, *, has_channels: bool = False) -> Mask:
    """Find the tissue in an overview of a slide, (h, w)."""
    rgb, um_pixel = overview.rgb, overview.um_pixel
    readable = ~overview.unreadable
    scanned = readable & ~overview.padding
    if not scanned.any():
        return scanned
    bright = brightest(rgb)
    # Much black padding does not make a slide dark: only what was scanned counts.
    is_dark = bool(
        np.percentile(bright[readable], 75) < _DARK
        and np.percentile(darkest(rgb)[scanned], 75) < 1.5 * _DARK
    )
    if is_dark or (has_channels and _is_smooth_dark(bright, scanned)):
        return _tidy(_on_dark(bright, readable, um_pixel), um_pixel) & readable
    found = _on_glass(rgb, scanned, um_pixel)
    if found is None and overview.padding.any():
        # No glass but the exact white: the scanner cut the glass off there.
        white = overview.padding & (bright == 255)
        found = _on_glass(rgb, scanned | (readable & white), um_pixel)
    if found is None:
        found = scanned
    return _tidy(found, um_pixel) & scanned


def _on_glass(rgb: NDArray[np.uint8], scanned: Mask, um_pixel: float) -> Mask | None:
    """Find what is rough and stained, or None where no glass is to be seen."""
    # Channels first, (3, h, w): numpy then works on whole planes, and plane by plane
    # it needs a third of the memory.
    table = -np.log((np.arange(256, dtype=np.float32) + 1) / 256)
    od = np.empty((3, *rgb.shape[:2]), np.float32)
    for plane, channel in zip(od, np.moveaxis(rgb, -1, 0), strict=True):
        plane[:] = table[channel]
    rough = _roughness(_darkness(od), scanned)
    glass = _find_glass(od, rough, scanned)
    if glass.sum() < _LEAST_GLASS * scanned.sum():
        return None
    noise = float(np.median(rough[glass]))
    roughest = np.clip(6 * noise, 0.01, _ROUGHEST_GLASS)

    _subtract_glass(od, glass, _UM_GLASS_DRIFT / um_pixel)
    for plane in od:
        plane[:] = _blur(plane, 0.7)
    darkness, colour = _darkness(od), _colour(od)
    stain = np.maximum(darkness, colour)
    faint = max(_FAINT, 4 * float(np.median(np.abs(stain[glass]))))

    strongest = ndimage.maximum_filter(_blur(stain, 1.5), 2 * _RINGING_REACH + 1)
    tissue = scanned & (rough > roughest)
    tissue &= stain > np.maximum(faint, _RINGING * strongest)
    tissue |= scanned & (colour > _STRONG)
    # A large slide's planes are large: free what is not needed any more.
    del rough, stain, strongest
    if tissue.any():
        tissue &= ~_grey(darkness, colour, tissue)
        tissue &= ~_pen(od, darkness, tissue)
    return tissue


def _darkness(od: Floats) -> Floats:
    red, green, blue = od
    return (red + green + blue) / 3


def _colour(od: Floats) -> Floats:
    """How far apart the channels are: stains have colour, shadows have none."""
    red, green, blue = od
    most = np.maximum(np.maximum(red, green), blue)
    return most - np.minimum(np.minimum(red, green), blue)


def _roughness(darkness: Floats, scanned: Mask) -> Floats:
    """The standard deviation of optical density around its local mean."""
    weight = np.maximum(_blur(scanned.astype(np.float32), _WINDOW), 1e-3)
    mean = _blur(np.where(scanned, darkness, 0), _WINDOW)
    mean /= weight
    detail = np.where(scanned, darkness - mean, 0)
    np.square(detail, out=detail)
    variance = _blur(detail, _WINDOW)
    variance /= weight
    return np.sqrt(np.maximum(variance, 0))


def _find_glass(od: Floats, rough: Floats, scanned: Mask) -> Mask:
    """Find what is surely glass: smooth, bright, and as bright as most of that."""
    darkness = _darkness(od)
    smooth = scanned & (rough < _ROUGHEST_GLASS) & (darkness < _DARKEST_GLASS)
    smooth &= _colour(od) < _MOST_COLOURED_GLASS
    if not smooth.any():
        return smooth
    # The smoothest that is not exactly flat (a scanner's fill) shows the noise.
    uneven = rough[smooth & (rough > _FLAT)]
    noise = float(np.percentile(uneven, 5)) if uneven.size else 0.0
    smooth &= rough < max(0.004, 3 * noise)
    level = _brightest_mode(darkness[smooth])
    return smooth & (np.abs(darkness - level) < 0.12)


def _brightest_mode(darkness: Floats) -> float:
    """The brightest peak that holds a good part of the values."""
    counts, edges = np.histogram(darkness, 120, (0, _DARKEST_GLASS))
    smoothed = ndimage.gaussian_filter1d(counts.astype(float), 3)
    peak = int(np.argmax(smoothed >= 0.25 * smoothed.max()))
    while peak + 1 < len(smoothed) and smoothed[peak + 1] > smoothed[peak]:
        peak += 1
    return float(edges[peak] + edges[peak + 1]) / 2


def _subtract_glass(od: Floats, glass: Mask, sigma: float) -> None:
    """Take away the glass's own colour, carried on to where there is tissue."""
    # The drift is slow, so a coarse image of it is enough.
    step = max(1, int(sigma / 8))
    sigma = sigma / step
    known = _spread(_shrink(glass.astype(np.float32), step), sigma)
    for plane in od:
        sums = _spread(_shrink(plane * glass, step), sigma)
        # A little of the overall colour decides where no glass is near.
        local = (sums + 1e-3 * plane[glass].mean()) / (known + 1e-3)
        plane -= _grow(local, step, glass.shape)


def _spread(values: Floats, sigma: float) -> Floats:
    return ndimage.gaussian_filter(values, sigma, mode="constant", truncate=3)


def _shrink(values: Floats, step: int) -> Floats:
    """Average blocks of ``step`` x ``step``; the last ones may be smaller."""
    rows = np.arange(0, values.shape[0], step)
    cols = np.arange(0, values.shape[1], step)
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), cols, axis=1)
    heights = np.diff(np.append(rows, values.shape[0]))
    widths = np.diff(np.append(cols, values.shape[1]))
    return sums / (heights[:, None] * widths)


def _grow(values: Floats, step: int, shape: tuple[int, int]) -> Floats:
    rows = (np.arange(shape[0]) + 0.5) / step - 0.5
    cols = (np.arange(shape[1]) + 0.5) / step - 0.5
    for axis, places in ((0, rows), (1, cols)):
        last = values.shape[axis] - 1
        low = np.clip(np.floor(places), 0, max(last - 1, 0)).astype(int)
        high = np.minimum(low + 1, last)
        part = np.clip(places - low, 0, 1).astype(np.float32)
        part = part[:, None] if axis == 0 else part[None]
        values = values.take(low, axis) * (1 - part) + values.take(high, axis) * part
    return values


def _grey(darkness: Floats, colour: Floats, tissue: Mask) -> Mask:
    """What has no colour of its own, on a slide whose tissue has."""
    darkness, colour = _blur(np.maximum(darkness, 0), 2.0), _blur(colour, 2.0)
    if colour[tissue].sum() < 1.5 * _GREY * darkness[tissue].sum():
        return np.zeros_like(tissue)
    return colour < _GREY * darkness


def _pen(od: Floats, darkness: Floats, tissue: Mask) -> Mask:
    """Blue, green and red ink, by which light it lets through; ``od`` is used up.

    Every stain of tissue absorbs green light most, or about as much as red (a blue
    haematoxylin) or blue (brown, blood). Ink does not.
    """
    for plane in od:
        plane[:] = _blur(plane, 1.0)
    red, green, blue = od
    inked = darkness > 0.06
    is_blue = (red > 1.2 * green) & (blue < 0.45 * red)
    is_green = (red > 1.25 * green) & (blue > 1.1 * green)
    is_red = (red < 0.3 * green) & (blue > 0.8 * green) & (green > 0.5)
    ink = inked & (is_blue | is_green | is_red)
    if ink.sum() == 0 or (ink & tissue).sum() > 0.4 * tissue.sum():
        # A colour that most of the slide has is its stain.
        return np.zeros_like(ink)
    # A stroke is wide: single specks of its colour are noise or a pigment.
    core = ndimage.binary_opening(ink, iterations=2)
    ink = ndimage.binary_propagation(core, mask=ink)
    ink &= ~_inside(ink & is_red, tissue)
    return ndimage.binary_dilation(ink, iterations=3)


def _inside(parts: Mask, tissue: Mask) -> Mask:
    """Which parts have mostly tissue around them: blood, not a red pen."""
    # The rim of a stroke fades and has lost its colour: look beyond it.
    grown = ndimage.binary_dilation(parts, iterations=4)
    labels, count = ndimage.label(grown)
    if count == 0:
        return parts
    ring = ndimage.grey_dilation(labels, 7) * ~grown
    around = np.bincount(ring.ravel(), minlength=count + 1)
    within = np.bincount(ring[tissue].ravel(), minlength=count + 1)
    inside = within > 0.6 * np.maximum(around, 1)
    inside[0] = False
    return inside[labels] & parts


def _is_smooth_dark(bright: NDArray[np.uint8], scanned: Mask) -> bool:
    """Whether the smoothest tenth is darker than the roughest."""
    rough = _roughness(_evened(bright), scanned)[scanned]
    low, high = np.percentile(rough, (10, 90))
    values = bright[scanned]
    return bool(np.median(values[rough <= low]) < np.median(values[rough >= high]))


def _evened(bright: NDArray[np.uint8]) -> Floats:
    """The square root, which evens out the noise of counted light."""
    return np.sqrt(bright.astype(np.float32))


def _on_dark(bright: NDArray[np.uint8], known: Mask, um_pixel: float) -> Mask:
    """Find what glows more than the empty part of a dark slide."""
    rough = _roughness(_evened(bright), known)
    glow = np.log1p(_blur(bright.astype(np.float32), max(1.0, 4 / um_pixel)))
    threshold, _ = _split(glow[known])
    # Bright nuclei may have hidden that the rest is tissue and emptiness.
    low = known & (glow <= threshold)
    lower, clarity = _split(glow[low])
    if clarity > 0.72:
        empty, between = low & (glow <= lower), low & (glow > lower)
        if np.median(rough[between]) > 1.5 * np.median(rough[empty]):
            threshold = lower
    return known & (glow > threshold)


def _split(values: Floats) -> tuple[float, float]:
    """Otsu's threshold, and the share of the variance that it explains."""
    counts, edges = np.histogram(values, 256)
    middles = (edges[:-1] + edges[1:]) / 2
    below = counts.cumsum()
    above = below[-1] - below
    sums = (counts * middles).cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = sums / below - (sums[-1] - sums) / above
        between = np.nan_to_num(below * above * gap * gap)
    best = int(between.argmax())
    total = len(values) ** 2 * float(values.var())
    return float(edges[best + 1]), float(between[best]) / total if total else 0.0


def _tidy(found: Mask, um_pixel: float) -> Mask:
    """Join what belongs together, fill small holes, drop small pieces."""
    radius = max(1, round(_UM_CLOSE / um_pixel))
    found = _grown(_grown(found, radius), -radius) | found
    # Glass at the image's edge continues outside and is not a hole.
    inner = np.pad(~found, 1, constant_values=True)
    holes = _small_pieces(inner, (_UM_SMALLEST_HOLE / um_pixel) ** 2)
    found |= holes[1:-1, 1:-1]
    # What is thinner than two radii is removed; the rest keeps its edge.
    core = _grown(found, -radius)
    found &= _grown(core, radius + 1)
    # A slide may itself be smaller than the smallest piece.
    smallest = min((_UM_SMALLEST_PIECE / um_pixel) ** 2, 0.02 * found.size)
    return found & ~_small_pieces(found, smallest)


def _grown(mask: Mask, radius: int) -> Mask:
    """Dilate by an octagon, or erode where ``radius`` is negative."""
    if radius < 0:
        return ~_grown(~mask, -radius)
    square = round(radius * 0.6)
    if square:
        values = mask.view(np.uint8)
        for axis in (0, 1):
            values = ndimage.maximum_filter1d(values, 2 * square + 1, axis)
        mask = values.view(bool)
    if radius > square:
        mask = ndimage.binary_dilation(mask, iterations=radius - square)
    return mask


def _small_pieces(mask: Mask, smallest: float) -> Mask:
    labels, count = ndimage.label(mask)
    small = np.bincount(labels.ravel(), minlength=count + 1) < smallest
    small[0] = False
    return small[labels]


def _blur(values: NDArray, sigma: float) -> NDArray:
    return ndimage.gaussian_filter(values, sigma, mode="nearest", truncate=3)
