"""Maps of slides by t-SNE, and pictures of attention and of positions."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.colours import LIMITS
from spt_core.insight.maps import TIMES_AVERAGE, attention_values
from spt_core.studies.benchmark_result import AttentionExample, Benchmark, SlideMap
from spt_core.studies.svg import FAINT, INK, Plot, colour, colour_bar, legend, opaque

SIDE = 300
# Below these a map says nothing; above, an even choice is drawn.
FEWEST, MOST = 6, 1500
PERPLEXITY = 30.0
MOST_ROWS = 64


def slide_places(h: NDArray[np.floating], *, seed: int = 0) -> NDArray[np.float64]:
    """Places of slides (n, 2) on a map where like slides are near, by t-SNE.

    By the angle between embeddings, as the nearest neighbours vote. Empty where there
    are too few slides, or where all embeddings are alike.
    """
    from sklearn.manifold import TSNE

    h = np.asarray(h, np.float64)
    none = np.zeros((0, 2))
    if len(h) < FEWEST or not np.isfinite(h).all():
        return none
    unit = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    if np.ptp(unit, axis=0).max(initial=0) < 1e-9:
        return none
    perplexity = min(PERPLEXITY, (len(h) - 1) / 3)
    made = TSNE(
        2, perplexity=perplexity, init="pca" if h.shape[1] > 1 else "random",
        random_state=seed,
    )  # fmt: skip
    return np.asarray(made.fit_transform(unit), np.float64)


def map_figures(found: Benchmark, one: SlideMap) -> list[str]:
    """Label, kNN's answer and site on one map, each with its legend."""
    rows = np.arange(len(found.y))
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(0).permutation(len(rows))[:MOST])
    places = slide_places(one.h[rows])
    if len(places) == 0:
        return []
    asked = one.is_test[rows]
    label = found.y[rows]
    said = f"Map of slides by {one.method}"
    figures = [_scatter(places, label, asked, found.classes, f"{said}: label", "Label")]
    answer = one.predicted[rows]
    if (answer >= 0).any():
        figures.append(
            _scatter(
                places, answer, asked, found.classes, f"{said}: kNN's answer",
                "kNN's answer", wrong=(answer >= 0) & (answer != label),
            )
        )  # fmt: skip
    sites = sorted({site for site in found.sites if site})
    if len(sites) > 1:
        number = {site: k for k, site in enumerate(sites)}
        of = np.array([number.get(found.sites[row] or "", -1) for row in rows])
        # Colours that no class has, as far as there are any.
        shift = len(found.classes)
        figures.append(
            _scatter(
                places, of, asked, sites, f"{said}: site", "Site", first_colour=shift
            )
        )
    return figures


def _scatter(
    places: NDArray[np.float64],
    groups: NDArray[np.integer],
    asked: NDArray[np.bool_],
    names: Sequence[str],
    said: str,
    title: str,
    wrong: NDArray[np.bool_] | None = None,
    first_colour: int = 0,
) -> str:
    """Slides in the colours of their groups; those of the test part have a rim."""
    low, high = places.min(axis=0), places.max(axis=0)
    pad = 0.05 * np.maximum(high - low, 1e-9)
    (x0, y0), (x1, y1) = low - pad, high + pad
    plot = Plot(SIDE, SIDE, (x0, x1), (y0, y1), left=4, right=4, top=26, bottom=4)
    plot.text(4, 17, title, bold=True)
    size = 8 if len(places) <= 300 else 5
    present = sorted(set(groups.tolist()))
    shades = {g: colour(g + first_colour if g >= 0 else -1) for g in present}
    for group in present:
        its = groups == group
        rim = its & asked
        plot.dots(places[rim, 0], places[rim, 1], INK, size=size + 3)
        plot.dots(places[its, 0], places[its, 1], shades[group], size=size)
    if wrong is not None:
        plot.dots(places[wrong, 0], places[wrong, 1], "#ffffff", size=size / 2.4)
    plot.frame()
    shown = [(shades[g], names[g] if g >= 0 else "not known") for g in present]
    note = [("radial-gradient(#fff 32%,#777 36%)", "wrong")]
    named = legend(shown + (note if wrong is not None and wrong.any() else []))
    return f"<figure>{plot.svg(said)}{named}</figure>"


def attention_figure(one: AttentionExample) -> str:
    """Where the model looked on the slide's grid; "" for a slide without patches."""
    if len(one.p) == 0:
        return ""
    times = attention_values(np.asarray(one.attention)[None], unit=TIMES_AVERAGE)
    low, high = LIMITS[TIMES_AVERAGE]
    grid = _grid(np.asarray(one.p, np.int64), times)
    rows, cols = grid.shape
    tall = min(220.0, 220.0 * rows / cols)
    wide = tall * cols / rows
    plot = Plot(SIDE, tall + 12, bottom=0)
    plot.picture(4, 6, wide, tall, opaque((grid - low) / (high - low)))
    bar = min(tall, 120.0)
    colour_bar(plot, wide + 16, 6, bar)
    plot.text(wide + 32, 15, f"{high:g} ×", size=11)
    plot.text(wide + 32, 6 + bar, f"{low:g} ×", size=11)
    return plot.svg(f"Attention of {one.method} on {one.name}")


def _grid(p: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values on the slide's grid, NaN where there is no patch.

    A large grid is drawn with larger cells: each the mean of its patches.
    """
    p = p - p.min(axis=0)
    step = int(np.ceil((p.max() + 1) / MOST_ROWS))
    cells = p // step
    shape = tuple(cells.max(axis=0) + 1)
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (cells[:, 0], cells[:, 1]), values)
    np.add.at(count, (cells[:, 0], cells[:, 1]), 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def position_figure(similarity: NDArray[np.floating]) -> str:
    """One square per place: how alike its position embedding is to all others."""
    k, side = similarity.shape[0], similarity.shape[2]
    low = float(np.floor(10 * similarity.min()) / 10)
    scaled = (similarity - low) / (1 - low)
    mosaic = np.full((k * (side + 2) - 2, k * (side + 2) - 2), np.nan)
    for row in range(k):
        for col in range(k):
            top, left = row * (side + 2), col * (side + 2)
            mosaic[top : top + side, left : left + side] = scaled[row, col]
    wide = 380.0
    plot = Plot(wide + 120, wide + 52, bottom=0)
    picture = opaque(mosaic)
    plot.picture(44, 6, wide, wide, picture)
    each = (wide + 2 * wide / len(mosaic)) / k
    for number in range(k):
        middle = (number + 0.5) * each
        name = str(position_of(number, k, side))
        plot.text(38, 6 + middle + 4, name, anchor="end", size=11)
        plot.text(44 + middle, wide + 22, name, anchor="middle", size=11)
    plot.text(44 + wide / 2, wide + 42, "column", anchor="middle")
    plot.text(12, wide / 2, "row", anchor="middle", turned=-90)
    colour_bar(plot, wide + 58, 6, 140)
    plot.text(wide + 76, 16, "1", size=11)
    plot.text(wide + 76, 146, f"{low:.1f}", size=11)
    plot.text(wide + 58, 166, "cosine", size=11, fill=FAINT)
    return plot.svg("Cosine similarity of position embeddings")


def position_of(number: int, k: int, side: int) -> int:
    """The row or column that a square of the figure is of."""
    return (2 * number + 1) * side // (2 * k)
