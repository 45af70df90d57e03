"""What users named is text in every report: no HTML, no code, no link, no new cell.

Markdown is read by a renderer that takes HTML, as those of code hosts do.
"""

from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt

from spt_core.studies.benchmark_report import write_report
from spt_core.studies.evaluation import Evaluation
from spt_core.studies.evaluation_report import page
from spt_core.studies.scores import TABLE_METRICS
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import StudySettings
from spt_core.studies.study_words import write_result
from spt_core.studies.table import EvaluationRow, Score
from tests.core.studies.made_benchmark import CLASSES, SITES, made_benchmark

NASTY = (
    "<script>alert(1)</script> | a `b` c \\` [d](javascript:e) ![f](g) "
    '<img src="x" onerror=alert(2)> &lt;script> " onload="alert(3)\n\n# h\n| i | j |'
)
ACTIVE = {"html_block", "html_inline", "fence", "code_block", "link_open", "image"}


@pytest.fixture(scope="module")
def found():
    made = made_benchmark(maps=4)
    assert "script" in "".join(CLASSES)
    assert "<b>" in "".join(SITES)
    return replace(
        made,
        title=NASTY,
        classes=tuple(f"{NASTY} {k}" for k in range(len(made.classes))),
        sites=tuple(one and NASTY + one for one in made.sites),
        names=tuple(f"{NASTY} {k}" for k in range(len(made.names))),
        failed=tuple(replace(one, cell=NASTY, why=NASTY) for one in made.failed),
        remarks=(NASTY,),
        command=NASTY,
        settings={NASTY: NASTY},
        hashes={NASTY: NASTY},
        attention=tuple(replace(one, name=NASTY) for one in made.attention),
    )


def rendered(path):
    """All tokens of a Markdown file, those within lines too."""
    text = path.read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [one for token in tokens for one in (token, *(token.children or ()))]


def assert_plain(path, titles):
    tokens = rendered(path)
    kinds = {one.type for one in tokens}
    assert not kinds & ACTIVE, kinds & ACTIVE
    code = {one.content for one in tokens if one.type == "code_inline"}
    assert code <= {"report.html"}  # our own word
    heads = [b for a, b in pairwise(tokens) if a.tag == "h1"]
    assert sum(one.type == "inline" for one in heads) == titles
    words = "".join(one.content for one in tokens if one.type == "text")
    assert "<script>alert(1)</script>" in words
    assert "[d](javascript:e)" in words


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.words, self.last, self.wrong = "", "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.last = tag
        if tag in ("script", "img", "iframe") or any(n[:2] == "on" for n, _ in attrs):
            self.wrong.append((tag, attrs))

    def handle_data(self, data):
        self.words += data


def test_a_benchmarks_report_and_tables(found, tmp_path):
    write_report(tmp_path, found)
    assert_plain(tmp_path / "tables.md", titles=1)
    tags = Tags((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not tags.wrong
    assert "<script>alert(1)</script>" in tags.words


def test_a_studys_result_and_readme(found, tmp_path):
    settings = StudySettings(
        out="out", goal="classify", features="x", labels=NASTY, title=NASTY
    )
    write_result(tmp_path, settings, found, (), [NASTY], {})
    assert_plain(tmp_path / "RESULT.md", titles=1)
    StudyFolder(tmp_path / "study").begin(settings)
    readme = (tmp_path / "study" / "README.md").read_text(encoding="utf-8")
    assert "script" not in readme


def test_an_evaluations_page(tmp_path):
    values = dict.fromkeys(TABLE_METRICS, Score(0.5, 0.1, 0.4, 0.6))
    row = EvaluationRow(NASTY, NASTY, NASTY, values, 0.5, 0.1)
    found = Evaluation(
        (row,), (NASTY,), 9, 9, 3, 1, 1, left_out=0, predictions=[], remarks=(NASTY,)
    )
    path = tmp_path / "evaluation.md"
    path.write_text(page(found, NASTY), encoding="utf-8")
    assert_plain(path, titles=1)
    assert sum(one.type == "td_open" for one in rendered(path)) == 3 + len(values) + 1
