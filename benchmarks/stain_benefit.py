"""What normalising stains is worth: on the sites of a sample cohort, on real sections.

    python benchmarks/stain_benefit.py                     # the sample cohort
    python benchmarks/stain_benefit.py --sections FOLDER   # and slides of one's own

Each slide is encoded in its own colours and by ``--stain macenko``. Of the cohort, the
mean of each slide's patches is asked for its class by slides of the other sites, and
for its site by slides of other patients. Of sections, a patch of one half of a section
is asked from which section it is by a classifier that learned from the other halves:
the less it can tell, the less of the staining is left. Neighbours in space are no
neighbours in that question. Intervals are over patients (the cohort) or blocks of
patches (sections).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _figures import Figures
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core import read_tokens
from spt_core.patches import EncodeSettings, SlideResult, encode_slides, slide_tasks
from spt_core.sample import write_sample_cohort
from spt_core.tokens import Tokens, read_labels

STAINS = ("none", "macenko")
NEIGHBOURS = 5
MPP = 1.0  # a quarter of the patches, which is enough here
DRAWS = 1000
BLOCK = 8  # patches a side
MOST = 1500  # patches of a section that are looked at


def encoded(
    paths: list[Path], out: Path, args: argparse.Namespace
) -> dict[str, list[Tokens]]:
    found: dict[str, list[Tokens]] = {}
    for stain in STAINS:
        settings = EncodeSettings(
            encoder=args.encoder,
            weights=args.weights,
            stain=stain,
            target_mpp=MPP,
            device="cpu",
        )
        folder = out / stain
        for event in encode_slides(slide_tasks(paths, folder), settings):
            if isinstance(event, SlideResult) and event.status != "done":
                raise SystemExit(f"{event.name}: {event.reason}")
        found[stain] = [read_tokens(folder / f"{p.stem}.h5") for p in paths]
    return found


def class_accuracy(truth: np.ndarray, said: np.ndarray, weights: np.ndarray) -> float:
    """Mean over the classes that are drawn at all."""
    each = [
        np.average(said[truth == c] == c, weights=weights[truth == c])
        for c in np.unique(truth)
        if weights[truth == c].sum() > 0
    ]
    return float(np.mean(each))


def with_interval(
    truth: np.ndarray, said: np.ndarray, groups: np.ndarray
) -> tuple[float, float, float]:
    """Accuracy and its 95 % interval, whole groups drawn anew."""
    names, of_group = np.unique(groups, return_inverse=True)
    rng = np.random.default_rng(0)
    drawn = [
        class_accuracy(
            truth,
            said,
            np.bincount(rng.integers(len(names), size=len(names)), None, len(names))[
                of_group
            ],
        )
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return class_accuracy(truth, said, np.ones(len(truth))), low, high


def asked(x: np.ndarray, y: np.ndarray, apart: np.ndarray, model: object) -> np.ndarray:
    """What is said of each part by those of the other parts."""
    said = np.empty_like(y)
    for one in np.unique(apart):
        out = apart == one
        said[out] = model.fit(x[~out], y[~out]).predict(x[out])
    return said


def knn() -> object:
    near = KNeighborsClassifier(NEIGHBOURS, metric="cosine", weights="distance")
    return make_pipeline(StandardScaler(), near)


def linear() -> object:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))


def tell(figures: Figures, name: str, found: tuple[float, float, float]) -> None:
    for what, value in zip((name, f"{name}, low", f"{name}, high"), found, strict=True):
        figures.add(what, 100 * value, "%")


def cohort(figures: Figures, folder: Path, args: argparse.Namespace) -> None:
    for _ in write_sample_cohort(
        folder, slides=args.slides, size=args.size, seed=args.seed, sites=args.sites,
        tumour=args.tumour,
    ):  # fmt: skip
        pass
    labels = read_labels(folder / "labels.csv")
    paths = sorted(folder.glob("*.tif"))
    rows = [labels.by_slide[path.stem] for path in paths]
    y, site, patient = (
        np.array([getattr(row, name) for row in rows])
        for name in ("label", "site", "patient")
    )
    figures.add("cohort, chance of a class", 100 / len(set(y)), "%")
    figures.add("cohort, chance of a site", 100 / len(set(site)), "%")
    for stain, slides in encoded(paths, folder / "features", args).items():
        figures.add(
            f"cohort, {stain}, slides normalised",
            sum(one.facts.stain_done == "macenko" for one in slides),
        )
        for one in slides:
            if stain != "none" and one.facts.stain_done != stain:
                print(f"  {one.name}: {one.facts.stain_done}")
        mean = np.stack([one.x.mean(axis=0) for one in slides])
        for how, model in (("kNN", knn()), ("linear", linear())):
            said = asked(mean, y, site, model)
            name = f"cohort, {stain}, class from other sites, {how}"
            tell(figures, name, with_interval(y, said, patient))
        said = asked(mean, site, patient, knn())
        name = f"cohort, {stain}, site from other patients, kNN"
        tell(figures, name, with_interval(site, said, patient))


def sections(figures: Figures, out: Path, args: argparse.Namespace) -> None:
    folder: Path = args.sections
    paths = sorted(p for p in folder.iterdir() if p.suffix in (".tif", ".svs"))
    figures.add("sections, chance", 100 / len(paths), "%")
    for stain, slides in encoded(paths, out, args).items():
        for one in slides:
            print(f"  {one.name}: {len(one)} patches, {one.facts.stain_done}")
        rng = np.random.default_rng(0)
        few = [one.take(np.sort(rng.permutation(len(one))[:MOST])) for one in slides]
        x = np.concatenate([one.x for one in few])
        y = np.repeat(np.arange(len(few)), [len(one) for one in few])
        half = np.concatenate([one.p[:, 1] > np.median(one.p[:, 1]) for one in few])
        blocks = np.concatenate([one.p // BLOCK @ (10_000, 1) for one in few])
        said = asked(x, y, half, linear())
        name = f"sections, {stain}, told apart by their patches"
        tell(figures, name, with_interval(y, said, blocks * len(few) + y))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--weights", type=Path, help="of the encoder")
    parser.add_argument("--slides", type=int, default=36)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument(
        "--tumour", choices=("minority", "majority"), default="minority"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sections", type=Path, help="a folder of slides")
    parser.add_argument("--only", choices=("cohort", "sections"))
    args = parser.parse_args()
    name = "_".join(["stain_benefit", *([args.only] if args.only else [])])
    figures = Figures(name, **vars(args))
    with tempfile.TemporaryDirectory() as temporary:
        if args.only != "sections":
            cohort(figures, Path(temporary) / "cohort", args)
        if args.sections:
            sections(figures, Path(temporary) / "sections", args)
    figures.save()


if __name__ == "__main__":
    main()
