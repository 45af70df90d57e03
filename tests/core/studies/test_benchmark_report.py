"""A benchmark's report: right numbers, nobody's name, nothing loaded or run."""

import csv
import json
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from statistics import stdev
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from spt_core.csv_files import csv_cell
from spt_core.insight.html_page import html_page
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.benchmark_files import (
    run_of,
    write_predictions,
    write_splits_file,
    write_tables_csv,
)
from spt_core.studies.benchmark_report import report_page, write_report
from spt_core.studies.benchmark_result import BenchmarkRow, Control, Line
from spt_core.studies.benchmark_words import control_sentence, headline, site_sentences
from spt_core.studies.methods import KNN, OWN
from spt_core.studies.paired import Difference
from spt_core.studies.scores import OutOfFold
from spt_core.studies.study_words import own_row, result_sentences
from spt_core.studies.table import Score
from spt_core.studies.table_text import markdown, without_nan
from tests.core.studies.browser import loaded_by
from tests.core.studies.made_benchmark import CLASSES, SITES, made_benchmark

FILES = {
    "report.html", "tables.md", "tables.csv", "results.json", "predictions.csv",
    "splits.json",
}  # fmt: skip
LINE = ("features", "method", "probe", "variant")


@pytest.fixture(scope="module")
def found():
    return made_benchmark(maps=4)


@pytest.fixture(scope="module")
def folder(found, tmp_path_factory):
    made = tmp_path_factory.mktemp("report")
    write_report(made, found)
    return made


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


class Page(HTMLParser):
    """The tags, addresses and words of a page, as a browser reads them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.said = set(), [], []
        self.feed(text)
        self.words = " ".join(" ".join(self.said).split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs), attrs
        self.addresses += [v for name, v in attrs if name in ("src", "href", "action")]

    def handle_data(self, data):
        if self.lasttag != "style":
            self.said.append(data)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_all_files_are_there(folder):
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "report.html").stat().st_size < 1_000_000


def test_predictions_give_the_scores_of_the_table(folder):
    folds, lines = defaultdict(list), set()
    for row in rows_of(folder / "predictions.csv"):
        lines.add(tuple(row[name] for name in LINE))
        if row["method"] not in ("mean", "abmil"):
            continue
        line = tuple(row[name] for name in LINE)
        folds[line, row["repeat"], row["seed"], row["fold"]].append(row)
    scores = defaultdict(list)
    for (line, *_), rows in folds.items():
        shares = np.array([[float(r[f"share of {c}"]) for c in CLASSES] for r in rows])
        y, answer = (
            np.array([CLASSES.index(row[name]) for row in rows])
            for name in ("label", "answer")
        )
        assert (shares.argmax(axis=1) == answer).all()
        shares /= shares.sum(axis=1, keepdims=True)
        scores[line].append(
            (
                balanced_accuracy_score(y, answer),
                f1_score(y, answer, average="macro"),
                roc_auc_score(y, shares, multi_class="ovr"),
            )
        )
    table = [row for row in rows_of(folder / "tables.csv") if row["of"] == "slides"]
    assert len(table) == len(lines) == 11 + 4 + 10
    assert len(scores) == 2 + 1
    for row in table:
        line = tuple(row[name] for name in LINE)
        if line not in scores:
            continue
        each = np.array(scores[line])
        assert float(row["accuracy"]) == pytest.approx(each[:, 0].mean(), abs=1e-9)
        assert float(row["accuracy_sd"]) == pytest.approx(stdev(each[:, 0]), abs=1e-9)
        assert float(row["f1"]) == pytest.approx(each[:, 1].mean(), abs=1e-9)
        assert float(row["auc"]) == pytest.approx(each[:, 2].mean(), abs=1e-4)


def test_runs_are_named_by_repeat_and_seed(found, folder):
    seen = defaultdict(set)
    slides = defaultdict(list)
    for row in rows_of(folder / "predictions.csv"):
        seen[row["method"]].add((row["repeat"], row["seed"]))
        key = (*(row[name] for name in LINE), row["repeat"], row["seed"])
        slides[key].append(row["slide"])
    assert seen["mean"] == {("0", ""), ("1", "")}
    assert seen["suspt"] == {(r, s) for r in "01" for s in "012"}
    assert all(sorted(one) == sorted(found.names) for one in slides.values())
    repeats = [run_of(found, found.rows[-1], k) for k in range(6)]
    assert repeats == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    one_failed = replace(found.rows[-1], runs=found.rows[-1].runs[:2],
                         run_names=((0, 1), (1, 2)))  # fmt: skip
    assert [run_of(found, one_failed, k) for k in range(2)] == [(0, 1), (1, 2)]


def test_results_hold_every_value(found, folder):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    text = (folder / "results.json").read_text(encoding="utf-8")
    read = json.loads(text, parse_constant=refuse)
    for row, made in zip(read["rows"], found.rows, strict=True):
        assert row["method"] == made.line.method
        for name, score in made.values.items():
            assert row["values"][name]["mean"] == pytest.approx(score.mean)
            assert row["values"][name]["high"] == pytest.approx(score.high)
            each = np.concatenate(row["folds"][name])
            assert each.mean() == pytest.approx(score.mean)
        assert row["pooled"] == pytest.approx(made.pooled)
        if made.difference:
            assert row["difference"]["p_holm"] == made.difference.p_holm
        assert np.sum(row["confusion"]) == pytest.approx(len(found.y))
        asked = sum(count for _, _, count in row["reliability"])
        assert asked == len(found.y) * len(made.runs)
    assert read["controls"][1]["low"] is None
    assert len(read["controls"][0]["scores"]) == 20
    assert [len(one["rows"]) for one in read["ablations"]] == [4, 10]
    assert len(read["failed"]) == 2
    assert read["hashes"] == found.hashes
    assert read["settings"] == found.settings
    assert "patients" in read
    assert read["patients"] == 60


def test_splits_name_the_slides_asked(found, folder):
    read = json.loads((folder / "splits.json").read_text(encoding="utf-8"))["splits"]
    assert len(read) == 10
    for split, fold in zip(read, found.divisions.folds, strict=True):
        assert set(split["test_patients"]) == {found.names[k] for k in fold.test}


def test_splits_know_slides_by_their_numbers(found, tmp_path):
    """Where unlabelled slides lie between, rows are not numbers."""
    numbers = 2 * np.arange(len(found.y)) + 1
    folds = tuple(
        replace(one, train=numbers[one.train], test=numbers[one.test])
        for one in found.divisions.folds
    )
    divided = replace(found.divisions, folds=folds)
    moved = replace(found, numbers=numbers, divisions=divided)
    write_splits_file(tmp_path / "splits.json", moved)
    first = json.loads((tmp_path / "splits.json").read_text())["splits"][0]
    asked = found.divisions.folds[0].test
    assert set(first["test_patients"]) == {found.names[k] for k in asked}


def test_no_patient_is_named_anywhere(folder):
    for path in folder.iterdir():
        assert "SECRET" not in path.read_text(encoding="utf-8"), path.name


def test_what_users_named_is_text_and_not_html(page):
    assert page.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "br",
        "nav", "a", "div", "table", "thead", "tbody", "tr", "th", "td", "small", "b",
        "ul", "li", "figure", "figcaption", "span", "i", "pre",
        "svg", "path", "polyline", "rect", "text", "image",
    }  # fmt: skip
    for text in (*CLASSES, *SITES, "<i>of three sites</i>", "out of memory <at all>"):
        assert text in page.words, text


def test_the_page_loads_nothing(page, folder):
    outside = [a for a in page.addresses if not a.startswith(("data:image/", "#"))]
    assert outside == []
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_the_page_opens_in_a_browser_without_network(folder, tmp_path):
    dom, addresses = loaded_by(folder / "report.html", tmp_path)
    assert "Six methods on gliomas &lt;i&gt;of three sites" in dom
    assert dom.count("<svg") > 20
    assert addresses == []
    # The same is seen to ask where it may: so the log would show it.
    asking = tmp_path / "asking.html"
    picture = '<img src="http://example.invalid/x.png">'
    asking.write_text(f"<html><body>{picture}</body></html>")
    (tmp_path / "again").mkdir()
    assert loaded_by(asking, tmp_path / "again")[1] == ["http://example.invalid/x.png"]
    refused = tmp_path / "refused.html"
    refused.write_text(html_page("x", [picture]))
    (tmp_path / "third").mkdir()
    assert loaded_by(refused, tmp_path / "third")[1] == []


def test_the_page_says_what_was_compared(found, page):
    rows = [row for row in found.rows if row.line.method == "suspt"]
    best = max(rows, key=lambda row: row.difference.mean)
    gain = f"{100 * best.difference.mean:.1f} points above mean (95 %: "
    assert f"suspt ({best.line.probe}) is {gain}" in page.words
    assert "94 slides of 60 patients at 3 sites" in page.words
    assert "5 folds by patient, drawn 2 times; trained methods 3 times" in page.words
    score = best.values["accuracy"]
    assert f"{score.mean:.3f} ± {score.sd:.3f}" in page.words
    assert f"({score.low:.3f} to {score.high:.3f})" in page.words
    assert "tell the site of a slide better than its class" in page.words
    assert "26 of 30" in page.words
    for text in (found.command, "ab" * 32, "knn_k: 10", NOT_FOR_DIAGNOSIS):
        assert text in page.words


def test_cells_of_csv_are_no_formulas(found, tmp_path):
    named = replace(found, classes=("=cmd|calc", "@x", "-y"))
    write_predictions(tmp_path / "predictions.csv", named)
    write_tables_csv(tmp_path / "tables.csv", named)
    for name in ("tables.csv", "predictions.csv"):
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                for cell in row:
                    if cell.startswith(("=", "+", "-", "@")):
                        float(cell)
    label = rows_of(tmp_path / "predictions.csv")[0]["label"]
    assert label in ("'=cmd|calc", "'@x", "'-y")


@pytest.mark.parametrize(
    ("given", "written"),
    [("=1+1", "'=1+1"), ("-1.5", "-1.5"), (-1.5, -1.5), ("+x", "'+x"),
     (float("nan"), ""), ("plain", "plain"), ("\t=1", "'\t=1"), (3, 3)],
)  # fmt: skip
def test_csv_cells(given, written):
    assert csv_cell(given) == written


def test_markdown_cells_stay_in_their_cells():
    assert markdown("a|b\n<script>") == "a\\|b &lt;script>"


def test_json_has_no_nan():
    assert without_nan({"a": (1.0, float("nan"))}) == {"a": [1.0, None]}


def difference(mean, low, high, p, holm=None):
    return Difference(mean, low, high, p, holm)


@pytest.mark.parametrize(
    ("found_difference", "is_shown", "words"),
    [
        (difference(0.081, 0.03, 0.132, 0.002, 0.01), True,
         "suspt (kNN) is 8.1 points above mean (95 %: 3.0 to 13.2; p = 0.01 after "
         "Holm)."),
        (difference(0.081, -0.01, 0.132, 0.06, 0.2), False,
         "No method is shown to be above mean. The largest difference: suspt (kNN) is "
         "8.1 points above mean (95 %: -1.0 to 13.2; p = 0.2 after Holm)."),
        (difference(0.081, 0.03, 0.132, 0.02, 0.06), False, "No method is shown"),
        (difference(-0.05, -0.08, -0.02, 0.001), False,
         "5.0 points below mean (95 %: 2.0 to 8.0; p = 0.001, not corrected)"),
        (difference(-0.05, -0.08, -0.02, 0.001), False, "Below mean: suspt (kNN)."),
    ],
)  # fmt: skip
def test_the_headline_claims_what_is_shown(found, found_difference, is_shown, words):
    base, ours = found.rows[0], found.rows[-2]
    assert (base.line.method, ours.line.method) == ("mean", "suspt")
    two = replace(found, rows=(base, replace(ours, difference=found_difference)))
    said, shown = headline(two)
    assert shown == is_shown
    assert words in " ".join(said)


def test_controls_say_when_something_leaks():
    line = Line("", "mean", KNN)
    leaks = Control(line, (0.5, 0.52), 1 / 3, 0.48, 0.54)
    assert "something leaks" in control_sentence(leaks)
    below = Control(line, (0.3, 0.31), 1 / 3, 0.29, 0.32)
    assert "No leak is seen" in control_sentence(below)


def test_sites_are_not_blamed_without_cause(found):
    better = Score(0.1, 0, 0, 0)
    rows = tuple(replace(r, site_knn=better) for r in found.rows if r.line.probe == KNN)
    told = replace(found, rows=rows)
    assert site_sentences(told) == ["No embedding tells sites better than classes."]
    assert site_sentences(replace(found, rows=(found.rows[1],))) == []
    # Of two sites half are guessed, of three classes a third.
    half, third = Score(0.55, 0, 0, 0), Score(0.5, 0, 0, 0)
    rows = tuple(
        replace(row, site_knn=half, values={**row.values, "accuracy": third})
        for row in rows
    )
    two = replace(told, rows=rows, sites=("a", "b") * 9)
    assert site_sentences(two) == ["No embedding tells sites better than classes."]
    six = replace(told, rows=rows, sites=tuple("abcdef") * 3)
    assert "better than its class" in site_sentences(six)[0]


@pytest.mark.parametrize(("low", "is_said"), [(1.0, True), (0.9, False)])
def test_a_perfect_score_says_what_its_interval_hides(found, low, is_said):
    ours = own_row(found, "mean")
    score = replace(ours.values["accuracy"], mean=1.0, low=low, high=1.0)
    rows = (replace(ours, values={**ours.values, "accuracy": score}),)
    settings = SimpleNamespace(method="mean", aim=SimpleNamespace(pretrains=False))
    said = " ".join(result_sentences(settings, replace(found, rows=rows), [], 9, ""))
    assert ("leaves this interval no width" in said) == is_said
    share = 100 * 3 / len(set(found.patients))
    assert (f"up to {share:.0f} %" in said) == is_said


@pytest.mark.parametrize("classes", [2, 30])
def test_the_least_that_a_report_is_made_of(found, tmp_path, classes):
    """Few or many classes, one fold, nothing known of sites, patients or spread."""
    n, nan = 60, float("nan")
    y = np.arange(n) % classes
    shares = np.random.default_rng(0).dirichlet(np.ones(classes), n)
    run = OutOfFold(y, np.where(np.arange(n) < 50, 0, -1), shares)
    values = dict.fromkeys(("accuracy", "f1", "auc"), Score(nan, 0.0, nan, nan))
    row = BenchmarkRow(Line("", "mean", KNN), values, {"slope": nan}, None, None, None,
                       1, 0, 0.1, (run,))  # fmt: skip
    failed = replace(row, line=Line("", "abmil", OWN), cells=0, missing=1, runs=())
    least = replace(
        found, classes=tuple(f"class {k}" for k in range(classes)), y=y,
        names=tuple(map(str, range(n))), patients=tuple(map(str, range(n))),
        sites=(None,) * n, is_patient_known=False, folds=1, repeats=1, seeds=(0,),
        divisions=replace(found.divisions, folds=found.divisions.folds[:0]),
        rows=(row, failed), ablations=(), controls=(), failed=(), maps=(),
        position_similarity=None, attention=(), remarks=(), settings={}, hashes={},
    )  # fmt: skip
    write_report(tmp_path, least)
    page = Page(report_page(least))
    assert "Nothing was compared with mean." in page.words
    assert "Patients are not known" in page.words
    assert "not defined" in page.words
    assert len(rows_of(tmp_path / "predictions.csv")) == 50


def test_folders_of_features_stand_side_by_side(found):
    rows = tuple(
        replace(row, line=replace(row.line, features=name))
        for name in ("uni", "own <&>")
        for row in found.rows
    )
    page = Page(report_page(replace(found, rows=rows, maps=())))
    assert "own <&> · ssspt-simclr (linear)" in page.words
    assert page.words.count("features method") >= 4
