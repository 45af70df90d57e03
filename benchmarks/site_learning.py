"""Does learning without labels learn the tissue, or the scanner?

    python scripts/make_bundled_slide_model.py
    python benchmarks/site_learning.py paint choose final labels
    python benchmarks/site_learning.py table

One cohort is painted, encoded by the bundled encoder and learned from; a second one,
of other patients **and other sites**, is asked. The first cohort's slides vote (k = 10)
or train a linear classifier. The site is asked for among the second cohort's own
slides, without those of the patient. Choices were made on ``choose``, the cohorts that
``scripts/make_bundled_slide_model.py`` painted in ``--bundled`` (one is learned from,
the two others are asked); ``final`` is of cohorts that nobody looked at before, one
slide per patient. What is in the JSON is not done again, so that a run may be killed.
Each run keeps what it said of every slide: all tables, and their intervals over
patients, come from the JSON.
"""

import argparse
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import _site_tables
import numpy as np
import torch
from _figures import RESULTS, _versions
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core import bundled, load_model
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.monitor import embed_slide
from spt_core.learning.settings import TrainSettings
from spt_core.learning.standardising import fit_standardiser, standardised
from spt_core.learning.training import train
from spt_core.learning.views import THE_PAPERS
from spt_core.patches import EncodeSettings, encode_slides, slide_tasks
from spt_core.sample.cohort import make_cases, write_case
from spt_core.studies.embeddings import pooling_model
from spt_core.tokens import read_labels
from spt_core.training.knn import knn_probabilities

ROOT = Path(__file__).parents[1]
SIZE = 4096
PATIENTS = {"majority": 60, "minority": 40}
SEEDS = (11, 12)  # of the cohorts: learned from, and asked
STEPS = 300
KINDS = ("no", "site", "slide")
REGIMES = ("majority", "minority")
# Besides split, crop and mask, the default.
VIEWS = {
    "mask": {"split": False, "crop": False},
    "split, mask": {"crop": False},
    "crop, mask": {"split": False},
}
# Which slides SimCLR keeps a slide apart from.
AGAINST = {
    "negatives of the site": {"negatives": "site"},
    "site batches": {"site_batches": True},
    "all": {"negatives": "all"},
}
# The default and what was before it, by every training seed; the rest by one.
COMPARED = (("site", "negatives of the site"), ("no", "all"))
ONCE = (
    ("site", "all"),
    ("slide", "all"),
    ("no", "negatives of the site"),
    ("site", "site batches"),
    ("no", "site batches"),
)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Pair:
    """Cohorts of one kind of tissue: learned from, and asked; folders below another."""

    regime: str
    known: str
    asked: tuple[str, ...]


# Cohort seeds 101, and 202 and 303: tumour is the minority.
CHOOSE = {"minority": Pair("minority", "cohort", ("calibration", "fresh"))}
# Asked are cohorts that nobody looked at before.
FINAL = {
    "majority": Pair("majority", "majority-11", ("majority-12",)),
    "minority": Pair("minority", "cohort", ("minority-12",)),
}


def finished(events):
    while True:
        try:
            next(events)
        except StopIteration as stop:
            return stop.value


def paint(work: Path, regime: str) -> None:
    """Both cohorts of the final table: features and labels.csv."""
    for seed in SEEDS if regime == "majority" else SEEDS[1:]:
        folder = work / f"{regime}-{seed}"
        if (folder / "labels.csv").exists():
            continue
        cases = make_cases(3 * 60, SIZE, seed, tumour=regime)
        first = {case.patient: case for case in reversed(cases)}
        cases = sorted(first.values(), key=lambda case: case.slide)[: PATIENTS[regime]]
        folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(cases), 10):
            encode(folder, cases[start : start + 10])
        rows = [f"{c.slide},{c.label},{c.patient},{c.site}\n" for c in cases]
        text = "slide,label,patient,site\n" + "".join(rows)
        (folder / "labels.csv").write_text(text, encoding="utf-8")
        print(f"{folder}: {len(cases)} slides", flush=True)


def encode(folder: Path, cases) -> None:
    features = folder / "features"
    features.mkdir(exist_ok=True)
    wanted = [c for c in cases if not (features / f"{c.slide}.h5").exists()]
    for case in wanted:
        finished(write_case(folder, case, None))
    paths = [folder / f"{case.slide}.tif" for case in wanted]
    settings = EncodeSettings(encoder=bundled.ENCODER, device="cpu")
    for result in finished(encode_slides(slide_tasks(paths, features, {}), settings)):
        if result.path is None:
            raise SystemExit(f"{result.name}: not encoded, {result.reason}")
    for path in paths:
        path.unlink()


def opened(works: tuple[Path, ...], *names: str) -> Cohort:
    """Slides of some cohorts, whose patients and sites are called by the cohort too."""
    slides = []
    for name in names:
        folder = cohort_folder(works, name)
        table = read_labels(folder / "labels.csv")
        slides += [
            replace(s, patient=f"{name} {s.patient}", site=f"{name} {s.site}")
            for s in open_cohort(folder / "features", table)
        ]
    return Cohort(slides)


def cohort_folder(works: tuple[Path, ...], name: str) -> Path:
    return next(work / name for work in works if (work / name / "labels.csv").exists())


class Results:
    """One JSON of all that was found; written after each run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict = {"runs": {}, "cohorts": {}}
        if path.exists():
            self.found = json.loads(path.read_text(encoding="utf-8"))

    def __contains__(self, name: str) -> bool:
        return name in self.found["runs"]

    def keep(self, name: str, record: dict) -> None:
        self.found["runs"][name] = record
        said = {k: round(v, 3) for k, v in record.items() if isinstance(v, float)}
        print(name, said, flush=True)
        self.save()

    def save(self) -> None:
        self.found["versions"] = _versions()
        self.path.parent.mkdir(exist_ok=True)
        temporary = self.path.with_suffix(".partial")
        temporary.write_text(_site_tables.compact(self.found), encoding="utf-8")
        temporary.replace(self.path)


class Question:
    """Both cohorts of a pair, and what they are asked."""

    def __init__(
        self, works: tuple[Path, ...], pair: Pair, results: Results, stage: str
    ) -> None:
        self.works, self.results, self.stage, self.pair = works, results, stage, pair
        self.runs = works[0] / "runs"
        self.known, self.asked = opened(works, pair.known), opened(works, *pair.asked)
        self.patients = np.array(self.asked.patients())
        self.y_known, self.y = self.known.class_numbers(), self.asked.class_numbers()
        results.found["cohorts"][f"{stage}/{pair.regime}"] = {
            "learned from": pair.known,
            "asked": list(pair.asked),
            "slides": [len(self.known), len(self.asked)],
            "patients": [len(set(self.known.patients())), len(set(self.patients))],
            "tokens": [round(float(np.mean([len(s) for s in one])))
                       for one in (self.known, self.asked)],
            "patient": np.unique(self.patients, return_inverse=True)[1].tolist(),
            "y": self.y.tolist(),
            "sites": self.asked.site_numbers().tolist(),
        }  # fmt: skip

    def name(self, *parts: str) -> str:
        return "/".join((self.stage, self.pair.regime, *parts))

    def scaled(self, kind: str) -> tuple[Cohort, Cohort]:
        """Each cohort by its own sites; no label is looked at."""
        by = fit_standardiser(kind, self.known, "labels")
        theirs = by.with_sites_of(self.asked)
        return standardised(self.known, by), standardised(self.asked, theirs)

    def embedded(self, encoder, kind: str):
        """Of the slides that vote and of those asked, (n, dim) each."""
        return tuple(
            np.stack([embed_slide(encoder, slide, CPU) for slide in one])
            for one in self.scaled(kind)
        )

    def judged(self, h_known, h) -> dict:
        votes = knn_probabilities(h_known, self.y_known, h, 3)
        classifier = make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=2000)
        ).fit(h_known, self.y_known)
        sites = self.asked.site_numbers()
        itself = self.patients[:, None] == self.patients[None, :]
        site = knn_probabilities(h, sites, h, int(sites.max()) + 1, forbidden=itself)
        return _site_tables.scored(
            self.y, sites, knn=votes.argmax(1), linear=classifier.predict(h),
            site_knn=site.argmax(1),
        )  # fmt: skip

    def pooled(self, which: str, kind: str) -> None:
        name = self.name(which, kind)
        if name in self.results:
            return
        encoder = pooling_model(which, self.known).encoder
        self.results.keep(name, self.judged(*self.embedded(encoder, kind)))

    def run_folder(self, *parts: str) -> Path:
        """By the cohort that is learned from: others may be asked of the same model."""
        name = "-".join((self.pair.known, *parts))
        return self.runs / name.replace(", ", "+").replace(" ", "_")

    def trained(self, parts: tuple[str, ...], kind: str, seed: int, **changes) -> None:
        name = self.name(*parts, f"seed {seed}")
        if name in self.results:
            return
        out = self.run_folder(*parts, str(seed))
        folder = cohort_folder(self.works, self.pair.known)
        settings = TrainSettings(
            features=str(folder / "features"),
            labels=str(folder / "labels.csv"),
            out=str(out),
            standardise=kind,
            seed=seed,
            device="cpu",
            **{"objective": "simclr", "model": "small", "steps": STEPS,
               "validate_epochs": 50, "checkpoint_steps": 1000, **changes},
        )  # fmt: skip
        if not (out / "embeddings.npz").exists():
            shutil.rmtree(out, ignore_errors=True)
            finished(train(settings, cohort=self.known))
        model = load_model(out / "last.safetensors")
        h_known, h = self.embedded(model.encoder, kind)
        record = self.judged(h_known, h)
        if settings.objective == "classify":
            said = model.classifier(torch.from_numpy(h)).detach().numpy().argmax(1)
            sites = self.asked.site_numbers()
            own = _site_tables.scored(self.y, sites, own=said)
            record = {**record, **own}
        self.results.keep(name, record)
        np.savez(out / "embeddings.npz", known=h_known, asked=h)

    def few_labels(self, name: str, h_known, h) -> None:
        """From 1, 2, 5 and 10 labelled patients per class, over 50 draws of them."""
        if name in self.results:
            return
        patients = np.array(self.known.patients())
        record: dict = {}
        for count in (1, 2, 5, 10):
            shares = []
            for draw in range(50):
                rng = np.random.default_rng([count, draw])
                rows = np.concatenate([
                    np.flatnonzero(np.isin(
                        patients,
                        rng.permutation(np.unique(patients[self.y_known == one]))[
                            :count],
                    ))
                    for one in range(3)
                ])  # fmt: skip
                scale = StandardScaler().fit(h_known)  # no label is needed for it
                fitted = LogisticRegression(max_iter=2000).fit(
                    scale.transform(h_known[rows]), self.y_known[rows]
                )
                right = fitted.predict(scale.transform(h)) == self.y
                shares.append(
                    np.mean([right[self.y == one].mean() for one in range(3)])
                )
            record[f"{count}"] = float(np.mean(shares))
            record[f"{count} sd"] = float(np.std(shares))
        self.results.keep(name, record)


def compare(question: Question, seeds: range) -> None:
    """Poolings and learning without labels, by how tokens are standardised."""
    for kind in KINDS:
        for which in ("mean", "max"):
            question.pooled(which, kind)
    for part in (COMPARED, ONCE):
        for seed in seeds if part is COMPARED else range(1):
            for kind, words in part:
                against = AGAINST[words]
                question.trained(("simclr", kind, words), kind, seed, **against)


def supervised(question: Question, seeds: range) -> None:
    for seed in seeds:
        for kind in ("site", "no"):
            for model in ("small", "abmil"):
                question.trained(
                    ("classify", model, kind), kind, seed,
                    objective="classify", model=model,
                )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "stages", nargs="*", default=["table"],
        help="paint, choose, final, vicreg, labels, views, supervised, table",
    )  # fmt: skip
    parser.add_argument("--work", type=Path, default=ROOT / "build/sites")
    parser.add_argument("--bundled", type=Path, default=ROOT / "build/bundled")
    parser.add_argument("--regimes", nargs="+", default=list(REGIMES))
    parser.add_argument("--seeds", type=int, default=3, help="training seeds")
    parser.add_argument("--json", type=Path, default=RESULTS / "site_learning.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(args.json)
    works, seeds = (args.work, args.bundled), range(args.seeds)
    for stage in args.stages:
        if stage == "table":
            print(_site_tables.tables(results.found))
            print("\n" + _site_tables.few_labels(results.found))
            continue
        for regime in args.regimes:
            if stage == "paint":
                paint(args.work, regime)
                continue
            if stage == "choose":
                if regime in CHOOSE:
                    question = Question(works, CHOOSE[regime], results, stage)
                    compare(question, seeds)
                    labels(question, seeds)
                continue
            question = Question(works, FINAL[regime], results, "final")
            if stage == "final":
                compare(question, seeds)
            elif stage == "vicreg":
                for seed in seeds:
                    for kind in ("site", "no"):
                        question.trained(
                            ("vicreg", kind), kind, seed, objective="vicreg"
                        )
            elif stage == "labels":
                labels(question, seeds)
            elif stage == "views":
                for seed in seeds:
                    for words, changes in VIEWS.items():
                        question.trained(
                            ("views", words), "site", seed, negatives="site",
                            views=replace(THE_PAPERS, **changes),
                        )  # fmt: skip
            else:
                supervised(question, seeds)


def labels(question: Question, seeds: range) -> None:
    """Linear classifiers of few patients, on what was embedded before."""
    for which in ("mean", "max"):
        for kind in ("no", "site"):
            name = question.name("labels", which, kind)
            if name not in question.results:
                encoder = pooling_model(which, question.known).encoder
                question.few_labels(name, *question.embedded(encoder, kind))
    for kind, words in COMPARED:
        for seed in seeds:
            out = question.run_folder("simclr", kind, words, str(seed))
            name = question.name("labels", "simclr", kind, words, f"seed {seed}")
            if name in question.results or not (out / "embeddings.npz").exists():
                continue
            model = load_model(out / "last.safetensors")
            question.few_labels(name, *question.embedded(model.encoder, kind))


if __name__ == "__main__":
    main()
