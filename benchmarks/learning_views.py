"""Views with their rows, index first, against the paper's pseudocode slide by slide."""

import argparse
from math import sqrt

import numpy as np
import torch
from _alternately import alternately
from _figures import Figures

from spt_core.learning.views import batch_views, view_generator


def paper_loop(slides: list) -> list:
    """Algorithm 1 of the paper on torch tensors, its slips mended."""

    def split(x, p):
        order = torch.randperm(len(p))
        cut = int(0.7 * len(p))
        first, second = order[:cut], order[cut:]
        return (x[first], p[first]), (x[second], p[second])

    def crop(x, p):
        anchor = p[torch.randint(len(p), (1,)).item()]
        area = torch.empty(1).uniform_(100, 400)
        aspect = torch.empty(1).uniform_(0.5, 2)
        height = torch.sqrt(area / aspect)
        width = height * aspect
        r0, r1 = anchor[0] - height / 2, anchor[0] + height / 2
        c0, c1 = anchor[1] - width / 2, anchor[1] + width / 2
        inside = (p[:, 0] > r0) & (p[:, 0] < r1) & (p[:, 1] > c0) & (p[:, 1] < c1)
        return x[inside], p[inside]

    def mask(x, p):
        size = int(torch.empty(1).uniform_(0.1, 0.8) * len(p))
        size = min(max(size, 1), 64)
        chosen = torch.randperm(len(p))[:size]
        return x[chosen], p[chosen]

    made = []
    for x, p in slides:
        one, other = split(x, p)
        made.append((mask(*crop(*one)), mask(*crop(*other))))
    return made


def ours(slides: list, epoch: int) -> list:
    ps = [p for _, p in slides]
    rngs = [view_generator(0, epoch, slide) for slide in range(len(slides))]
    views = batch_views(ps, rngs)
    return [
        [(x[rows], p[rows]) for (x, p), rows in zip(slides, view, strict=True)]
        for view in views
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)  # ours has one too
    figures = Figures("learning_views", seed=0, threads=1)
    for tokens in (500, 2000, 10_000):
        rng = np.random.default_rng(0)
        side = int(sqrt(tokens)) + 1
        p = np.stack(np.divmod(np.arange(tokens), side), axis=1).astype(np.int32)
        slides = [
            (rng.standard_normal((tokens, 512), np.float32), p)
            for _ in range(min(args.slides, 200_000 // tokens))
        ]
        tensors = [(torch.from_numpy(x), torch.from_numpy(p)) for x, p in slides]
        _, quick, ratio = alternately(
            lambda tensors=tensors: paper_loop(tensors),
            lambda slides=slides: ours(slides, 1),
            repeats=args.repeats,
        )
        milliseconds = 1000 * quick / len(slides)
        figures.add(f"views of {tokens} tokens", milliseconds, "ms a slide")
        figures.add(f"loop / ours at {tokens} tokens", ratio, "x", goal=">= 5")
    figures.save()


if __name__ == "__main__":
    main()
