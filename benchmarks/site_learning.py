"""Does learning without labels learn the tissue, or the scanner?

    python benchmarks/site_learning.py paint choose move final
    python benchmarks/site_learning.py table

One cohort is painted, encoded by the bundled encoder and learned from; a second one,
of other patients **and other sites**, is asked. The first cohort's slides vote (k = 10)
or train a linear classifier. The site is asked for among the second cohort's own
slides, without those of the patient. ``choose`` is of cohort seeds 0 and 1, and so is
``move``, with the default's own batches; ``final`` is of cohorts that nobody looked at
before, one slide per patient. ``earlier`` and ``earlier choice``, of which the JSON
keeps the results alone, are of the cohorts that the default was chosen on, and of the
first that it was tried on then.
What is in the JSON is not done again, so that a run may be killed.
Each run keeps what it said of every slide: all tables, and their intervals over
patients, come from the JSON.
"""

import argparse
import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import _site_tables
import numpy as np
import torch
from _figures import RESULTS, _versions
from _other_ways import moved_places, two_sizes
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
# Cohorts by their folder: tumour is the, seed, patients with one slide each.
COHORTS = {
    "minority-0": ("minority", 0, 40),
    "minority-1": ("minority", 1, 40),
    "minority-21": ("minority", 21, 60),
    "minority-22": ("minority", 22, 60),
    "majority-21": ("majority", 21, 60),
    "majority-22": ("majority", 22, 60),
}
STEPS = 300
KINDS = ("no", "site", "slide")
REGIMES = ("majority", "minority")
# Which slides SimCLR keeps a slide apart from.
AGAINST = {
    "negatives of the site": {"negatives": "site"},
    "site batches": {"site_batches": True, "negatives": "all"},
    "all": {"negatives": "all"},
}
DEFAULT = ("simclr", "site", "negatives of the site")
THE_PAPERS_WAY = ("simclr", "no", "all")
MASK_ALONE = replace(THE_PAPERS, split=False, crop=False)
# Ways of learning that are compared, by all training seeds: options of the run.
METHODS: dict[tuple[str, ...], dict] = {
    DEFAULT: AGAINST["negatives of the site"],
    THE_PAPERS_WAY: AGAINST["all"],
    ("vicreg", "site", "site batches"): {"objective": "vicreg", "site_batches": True},
    ("byol", "site", "site batches"): {"objective": "byol", "site_batches": True},
    ("mask alone", "site"): {"negatives": "site", "views": MASK_ALONE},
    ("supervised", "site", "small"): {"objective": "classify"},
    ("supervised", "site", "abmil"): {"objective": "classify", "model": "abmil"},
}
FEW = (1, 2, 5, 10)  # labelled patients per class


def four_views(**changes) -> dict:
    """As many views in all as of the default."""
    return {"views": replace(THE_PAPERS, views=4, **changes), "steps": STEPS // 2}


# Tried on the cohorts of the choice: how views are made, and the temperature.
TRIED: dict[str, tuple] = {
    "default": (nullcontext, {}),
    "flips and turns": (partial(moved_places, turned=True, shifted=False), {}),
    "shifts": (partial(moved_places, turned=False, shifted=True), {}),
    "flips, turns, shifts": (partial(moved_places, turned=True, shifted=True), {}),
    "turn, shift 16": (
        nullcontext, {"views": replace(THE_PAPERS, turn=True, shift=16)}
    ),
    "shift 16": (nullcontext, {"views": replace(THE_PAPERS, shift=16)}),
    "four views, half the steps": (nullcontext, four_views()),
    "two sizes, half the steps": (two_sizes, four_views()),
    "crops of 60 to 300": (
        nullcontext, {"views": replace(THE_PAPERS, crop_area=(60, 300))}
    ),
    "crops of 30 to 150": (
        nullcontext, {"views": replace(THE_PAPERS, crop_area=(30, 150))}
    ),
    "mask alone": (nullcontext, {"views": MASK_ALONE}),
    "no crop": (nullcontext, {"views": replace(THE_PAPERS, crop=False)}),
    "32 tokens": (nullcontext, {"views": replace(THE_PAPERS, max_tokens=32)}),
    "128 tokens": (nullcontext, {"views": replace(THE_PAPERS, max_tokens=128)}),
    "temperature 0.2": (nullcontext, {"temperature": 0.2}),
    "temperature 0.5": (nullcontext, {"temperature": 0.5}),
}  # fmt: skip
# By more than one training seed, as the default: what looked as if it might help.
OFTEN = {
    "flips, turns, shifts": 3,
    "turn, shift 16": 3,
    "crops of 60 to 300": 3,
    "crops of 30 to 150": 3,
    "mask alone": 3,
    "32 tokens": 3,
}
# And in the default's own batches.
MOVED = ("default", "turn, shift 16", "shift 16", "crops of 60 to 300", "mask alone")
# Of methods without negatives: VICReg's variance and BYOL's batch norms are then of
# slides of one site.
WITHOUT_NEGATIVES: dict[str, dict] = {
    "": {},
    "900 steps": {"steps": 900},
    "rate 1e-3": {"learning_rate": 1e-3},
    "invariance 2": {"vicreg_weights": (2.0, 10.0, 1.0)},
    "rate 1e-3, 900 steps": {"learning_rate": 1e-3, "steps": 900},
    "plain head": {"head": "paper"},
}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Pair:
    """Cohorts of one kind of tissue: learned from, and asked; folders below another."""

    regime: str
    known: str
    asked: str


CHOOSE = Pair("minority", "minority-0", "minority-1")
# Cohorts that nobody looked at before.
FINAL = {one: Pair(one, f"{one}-21", f"{one}-22") for one in REGIMES}


def finished(events):
    while True:
        try:
            next(events)
        except StopIteration as stop:
            return stop.value


def paint(work: Path, name: str) -> None:
    """One cohort: features and labels.csv, which comes last."""
    folder = work / name
    if (folder / "labels.csv").exists():
        return
    regime, seed, patients = COHORTS[name]
    cases = make_cases(3 * patients, SIZE, seed, tumour=regime)
    first = {case.patient: case for case in reversed(cases)}
    cases = sorted(first.values(), key=lambda case: case.slide)[:patients]
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


def opened(work: Path, name: str) -> Cohort:
    """A cohort whose patients and sites are called by its name too."""
    table = read_labels(work / name / "labels.csv")
    return Cohort([
        replace(s, patient=f"{name} {s.patient}", site=f"{name} {s.site}")
        for s in open_cohort(work / name / "features", table)
    ])  # fmt: skip


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

    def __init__(self, work: Path, pair: Pair, results: Results, stage: str) -> None:
        self.work, self.results, self.stage, self.pair = work, results, stage, pair
        self.known, self.asked = opened(work, pair.known), opened(work, pair.asked)
        self.patients = np.array(self.asked.patients())
        self.y_known, self.y = self.known.class_numbers(), self.asked.class_numbers()
        results.found["cohorts"][f"{stage}/{pair.regime}"] = {
            "learned from": pair.known,
            "asked": [pair.asked],
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
        h_known, h = self.embedded(encoder, kind)
        few = self.few_labels(h_known, h)
        self.results.keep(name, {**self.judged(h_known, h), **few})

    def trained(self, parts: tuple[str, ...], kind: str, seed: int, **changes) -> None:
        name = self.name(*parts, f"seed {seed}")
        if name in self.results:
            return
        out = self.work / "runs" / name.replace(", ", "+").replace(" ", "_")
        folder = self.work / self.pair.known
        settings = TrainSettings(
            features=str(folder / "features"),
            labels=str(folder / "labels.csv"),
            out=str(out),
            standardise=kind,
            seed=seed,
            device="cpu",
            **{"objective": "simclr", "model": "small", "steps": STEPS,
               "validate_epochs": 1000, "checkpoint_steps": 1000, **changes},
        )  # fmt: skip
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
        else:
            record |= self.few_labels(h_known, h)
        self.results.keep(name, record)

    def few_labels(self, h_known, h) -> dict[str, dict[str, list[float]]]:
        """By labelled patients per class: mean and spread over 50 draws of them, and
        in which share of the draws each slide was right."""
        patients = np.array(self.known.patients())
        scale = StandardScaler().fit(h_known)  # no label is needed for it
        known, asked = scale.transform(h_known), scale.transform(h)
        found: dict[str, dict[str, list[float]]] = {"few": {}, "few right": {}}
        for count in FEW:
            rights = []
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
                fitted = LogisticRegression(max_iter=2000)
                fitted.fit(known[rows], self.y_known[rows])
                rights.append(fitted.predict(asked) == self.y)
            right = np.array(rights)  # (draws, slides)
            shares = np.mean(
                [right[:, self.y == one].mean(axis=1) for one in range(3)], axis=0
            )
            found["few"][str(count)] = [float(shares.mean()), float(shares.std())]
            found["few right"][str(count)] = right.mean(axis=0).round(2).tolist()
        return found


def choose(question: Question, seeds: range) -> None:
    """What else might help, in batches of one site, which take a fifth of the time."""
    for kind in KINDS:
        for which in ("mean", "max"):
            question.pooled(which, kind)
    one_site = AGAINST["site batches"]
    for seed in seeds:
        question.trained(("tried", "default"), "site", seed, **one_site)
    for objective in ("vicreg", "byol"):
        for words, changes in WITHOUT_NEGATIVES.items():
            if "vicreg_weights" in changes and objective != "vicreg":
                continue
            parts = tuple(part for part in ("tried", objective, words) if part)
            options = {"objective": objective, "site_batches": True, **changes}
            question.trained(parts, "site", 0, **options)
    for words, (views, changes) in TRIED.items():
        with views():
            for seed in range(OFTEN.get(words, 1)):
                options = {**one_site, **changes}
                question.trained(("tried", words), "site", seed, **options)


def move(question: Question, seeds: range) -> None:
    """Whether moved places help the default too, which sees five times the views."""
    for which in ("mean", "max"):
        question.pooled(which, "no")
    for seed in seeds:
        for words in MOVED:
            views, changes = TRIED[words]
            options = {**AGAINST["negatives of the site"], **changes}
            with views():
                question.trained(("tried", words), "site", seed, **options)


def compare(question: Question, seeds: range) -> None:
    """The final table: poolings, and each method by all training seeds."""
    for kind in KINDS:
        for which in ("mean", "max"):
            question.pooled(which, kind)
    for seed in seeds:
        for parts, changes in METHODS.items():
            question.trained(parts, parts[1], seed, **changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "stages", nargs="*", default=["table"], help="paint, choose, move, final, table"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "build/sites")
    parser.add_argument("--regimes", nargs="+", default=list(REGIMES))
    parser.add_argument("--seeds", type=int, default=3, help="training seeds")
    parser.add_argument("--json", type=Path, default=RESULTS / "site_learning.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results, seeds = Results(args.json), range(args.seeds)
    for stage in args.stages:
        if stage == "paint":
            for name in COHORTS:
                paint(args.work, name)
        elif stage == "choose":
            choose(Question(args.work, CHOOSE, results, stage), seeds)
        elif stage == "move":
            move(Question(args.work, CHOOSE, results, stage), seeds)
        elif stage == "final":
            for regime in args.regimes:
                compare(Question(args.work, FINAL[regime], results, stage), seeds)
        else:
            print(_site_tables.tables(results.found))
            print("\n" + _site_tables.few_labels(results.found))


if __name__ == "__main__":
    main()
