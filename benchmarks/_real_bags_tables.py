"""Rows of ``real_bags.py`` as plain figures, and its tables from the JSON alone."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from spt_core.studies.benchmark_result import BenchmarkRow
from spt_core.studies.paired import Difference, holm, paired_difference
from spt_core.studies.scores import OutOfFold, asked_weights, fold_scores
from spt_core.studies.table import Score, score_of

OWN, LINEAR = "own classifier", "linear"
DIGITS = 4


@dataclass(frozen=True)
class Way:
    """How a row's model came about: ``ssl`` or ``labels``, and how standardised."""

    kind: str
    standardise: str


@dataclass(eq=False)
class Question:
    """One table: what is asked of whom, and the rows so far.

    Attributes
    ----------
    patients
        Of each slide; never written out.
    apart : (n,) bool
        Of persons whom the patch encoder has never seen.
    """

    classes: tuple[str, ...]
    patients: list[str]
    apart: np.ndarray
    tokens: float
    folds: int
    rows: dict[tuple[str, str, str], tuple[int, BenchmarkRow]] = field(
        default_factory=dict
    )

    def add(
        self, way: Way, method: str, draws: int, rows: Sequence[BenchmarkRow]
    ) -> None:
        for row in rows:
            key = (method, way.standardise, row.line.probe)
            # The same method may have been done in several benchmarks.
            if key not in self.rows or self.rows[key][0] < draws:
                self.rows[key] = (draws, row)

    def plain(self) -> dict:
        y = next(iter(self.rows.values()))[1].runs[0].y
        lines = [self._line(*key) for key in self.rows]
        compared = [one for one in lines if one["difference"]]
        adjusted = holm([one["difference"]["p"] for one in compared])
        for one, p in zip(compared, adjusted, strict=True):
            one["difference"]["p_holm"] = p
        return {
            "classes": list(self.classes),
            "slides": np.bincount(y, minlength=len(self.classes)).tolist(),
            "patients": len(set(self.patients)),
            "kept apart": [
                int(self.apart.sum()),
                len(set(np.array(self.patients)[self.apart])),
            ],
            "tokens": round(self.tokens, 1),
            "folds": self.folds,
            "rows": [rounded(one) for one in lines],
        }

    def _line(self, method: str, standardise: str, probe: str) -> dict:
        draws, row = self.rows[method, standardise, probe]
        apart = self.apart.any()
        patients = row.patient_values
        return {
            "method": method,
            "standardise": standardise,
            "probe": probe,
            "draws": draws,
            "accuracy": asdict(row.values["accuracy"]),
            "auc": asdict(row.values["auc"]),
            "accuracy by draw": [
                float(np.nanmean(fold_scores(run, "accuracy"))) for run in row.runs
            ],
            "of patients": asdict(patients["accuracy"]) if patients else None,
            "difference": self._difference(method, standardise, probe, row.runs),
            "kept apart": asdict(self._score_apart(row.runs)) if apart else None,
            "kept apart, difference": (
                self._difference(method, standardise, probe, row.runs, apart=True)
                if apart
                else None
            ),
            "seconds": row.seconds,
        }

    def _difference(
        self,
        method: str,
        standardise: str,
        probe: str,
        runs: Sequence[OutOfFold],
        *,
        apart: bool = False,
    ) -> dict | None:
        """To mean pooling, standardised alike and asked alike."""
        asked = LINEAR if probe == OWN else probe
        theirs = self.rows.get(("mean", standardise, asked))
        if method == "mean" or theirs is None:
            return None
        ours, others = list(runs), list(theirs[1].runs)
        if apart:
            ours, others = self._apart(ours), self._apart(others)
            # All their folds are one now: runs are paired by their place.
            others = others[: len(ours)]
        found: Difference = paired_difference(ours, others, self.patients, "accuracy")
        return asdict(found)

    def _apart(self, runs: Sequence[OutOfFold]) -> list[OutOfFold]:
        """Those kept apart alone: too few for scores within folds, so all as one."""
        fold = np.where(self.apart, 0, -1)
        return [OutOfFold(run.y, fold, run.shares) for run in runs]

    def _score_apart(self, runs: Sequence[OutOfFold]) -> Score:
        apart = self._apart(runs)
        return score_of(apart, "accuracy", asked_weights(apart, self.patients))


def rounded(value):
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def compact(record: dict) -> str:
    """JSON with one row per line, for readable differences between versions."""
    head = {name: one for name, one in record.items() if name != "questions"}
    parts = []
    for name, asked in record["questions"].items():
        facts = {one: asked[one] for one in asked if one != "rows"}
        rows = ",\n".join(f"    {json.dumps(row)}" for row in asked["rows"])
        parts.append(
            f"  {json.dumps(name)}: {{{json.dumps(facts)[1:-1]},\n"
            f'   "rows": [\n{rows}\n   ]}}'
        )
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in head.items()]
    body = ",\n".join([*lines, ' "questions": {\n' + ",\n".join(parts) + "\n }"])
    return "{\n" + body + "\n}\n"


def tables(questions: dict) -> str:
    return "\n\n".join(_table(name, asked) for name, asked in questions.items())


def _table(name: str, asked: dict) -> str:
    counts = zip(asked["slides"], asked["classes"], strict=True)
    slides, persons = asked["kept apart"]
    by_person = any(row["of patients"] for row in asked["rows"])
    head = ["method", "tokens", "classifier", "draws", "accuracy", "− mean", "AUC"]
    head += ["persons"] if by_person else []
    head += ["not seen", "− mean"] if slides else []
    about = (
        f"**{name}**: {', '.join(f'{n} {one}' for n, one in counts)}, of "
        f"{asked['patients']} {'persons' if by_person else 'images'}; {asked['folds']} "
        f"folds, {asked['tokens']:.0f} patches each."
    )
    if slides:
        about += f" Not seen by the encoder: {slides} of {persons} persons."
    lines = [about, "", _joined(head), "|" + "---|" * len(head)]
    for row in asked["rows"]:
        cells = [
            row["method"],
            "standardised" if row["standardise"] == "site" else "as they are",
            "own" if row["probe"] == OWN else row["probe"],
            str(row["draws"]),
            _percent(row["accuracy"]),
            _points(row["difference"]),
            _percent(row["auc"]),
        ]
        cells += [_percent(row["of patients"])] if by_person else []
        if slides:
            cells += [
                _percent(row["kept apart"]), _points(row["kept apart, difference"])
            ]  # fmt: skip
        lines.append(_joined(cells))
    return "\n".join(lines)


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(score: dict | None) -> str:
    if score is None:
        return ""
    low, high = 100 * score["low"], 100 * score["high"]
    return f"{100 * score['mean']:.1f} [{low:.0f}, {high:.0f}]"


def _points(found: dict | None) -> str:
    if found is None:
        return ""
    p = found["p_holm"]  # of those kept apart there is none
    sure = " *" if p is not None and p < 0.05 else ""
    low, high = 100 * found["low"], 100 * found["high"]
    return f"{100 * found['mean']:+.1f} [{low:+.1f}, {high:+.1f}]{sure}"
