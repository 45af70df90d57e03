"""A benchmark as a folder that can go into a paper's supplement as it is."""

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

import yaml

from spt_core.files import written_whole
from spt_core.insight.colours import NOT_WHERE
from spt_core.insight.html_page import CITATION, fact_rows, html_page
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.benchmark_curves import (
    ablation_figure,
    confusion_figure,
    difference_figure,
    reliability_figure,
    roc_figure,
)
from spt_core.studies.benchmark_files import (
    made_by,
    write_markdown,
    write_predictions,
    write_results,
    write_splits_file,
    write_tables_csv,
)
from spt_core.studies.benchmark_maps import (
    attention_figure,
    map_figures,
    position_figure,
)
from spt_core.studies.benchmark_result import Benchmark, BenchmarkRow
from spt_core.studies.benchmark_tables import (
    ablation_table,
    control_table,
    difference_table,
    more_scores,
    paper_tables,
    patient_table,
    site_table,
)
from spt_core.studies.benchmark_words import (
    control_sentence,
    headline,
    how,
    line_name,
    meaning,
    site_sentences,
)
from spt_core.studies.methods import KNN, LINEAR, OWN

# So many failed cells are listed; all are in results.json.
MOST_FAILED = 40
_STYLE = """
h3{font-size:1rem;margin:22px 0 6px}nav{font-size:.9rem;margin:14px 0}
nav a{margin-right:14px;color:#2a4a80;white-space:nowrap}
.wide{overflow-x:auto}.scores{font-size:.79rem;font-variant-numeric:tabular-nums}
.scores th,.scores td{padding:5px 9px 5px 0;white-space:nowrap;overflow-wrap:normal}
.scores thead th{vertical-align:bottom}.scores thead tr:last-child th{
border-bottom:1.5px solid #1e1e1e}.scores .group{border-bottom:1px solid #999;
padding-top:0}.scores tbody td{border-bottom:1px solid #e8e9ee}
.scores small{display:block;color:#5a5a5a;font-size:.92em}.note{font-size:.85rem;
color:#444;margin:6px 0}.trio{display:grid;gap:10px 18px;
grid-template-columns:repeat(auto-fill,minmax(min(270px,100%),1fr))}
svg{width:100%;height:auto;display:block;font-family:system-ui,sans-serif}
.legend{font-size:.8rem;margin:4px 0;line-height:1.5}.legend span{margin-right:14px;
display:inline-block}.legend i{display:inline-block;width:.75em;height:.75em;
border-radius:50%;margin-right:5px}pre{white-space:pre-wrap;overflow-wrap:anywhere;
background:#f3f4f8;padding:10px;font-size:.8rem}
.plain td{max-width:70ch}.scores.plain td{white-space:normal}
@media(max-width:600px){body{padding:14px}.answer{font-size:1.05rem}}
@media print{body{max-width:none;padding:0;font-size:10.5pt}nav{display:none}
.wide{overflow:visible}.scores{font-size:7.5pt}.scores th,.scores td{padding-right:8px}
h2,h3{break-after:avoid}figure,svg,tr,.method{break-inside:avoid}
.trio{grid-template-columns:repeat(3,1fr)}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


def write_report(folder: Path, found: Benchmark) -> None:
    """Write the report, its tables, every value, every prediction and the splits."""
    folder = Path(folder)
    write_markdown(folder / "tables.md", found)
    write_tables_csv(folder / "tables.csv", found)
    write_results(folder / "results.json", found)
    write_predictions(folder / "predictions.csv", found)
    write_splits_file(folder / "splits.json", found)
    with written_whole(folder / "report.html") as temporary:
        temporary.write_text(report_page(found), encoding="utf-8")


def report_page(found: Benchmark) -> str:
    """The page as HTML, every figure within it and nothing outside."""
    sections = [
        ("Results", _results(found)),
        (f"Against {found.baseline}", _differences(found)),
        ("Class and site", _site(found)),
        ("Answers by method", _answers(found)),
        ("More scores", _more(found)),
        ("Maps of slides", _maps(found)),
        ("Ablations", _ablations(found)),
        ("Controls", _controls(found)),
        ("Where models look", _attention(found)),
        ("Positions", _positions(found)),
        ("Failed cells", _failed(found)),
        ("Remarks", _listed([*found.divisions.remarks, *found.remarks])),
        ("What each number means", _meaning(found)),
        ("Where this comes from", _provenance(found)),
    ]
    kept = [(title, body) for title, body in sections if body]
    links = " ".join(
        f'<a href="#part-{number}">{escape(title)}</a>'
        for number, (title, _) in enumerate(kept)
    )
    said, is_shown = headline(found)
    body = [
        f"<h1>{escape(found.title)}</h1>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
        f'<p class="answer{"" if is_shown else " doubt"}">'
        f"{'<br>'.join(escape(one) for one in said)}</p>",
        *(_paragraph(one) for one in how(found)),
        f"<nav>{links}</nav>",
    ]
    for number, (title, parts) in enumerate(kept):
        body += [f'<h2 id="part-{number}">{escape(title)}</h2>', *parts]
    return html_page(found.title, body, _STYLE)


def _results(found: Benchmark) -> list[str]:
    return [table.html() for table in paper_tables(found)]


def _differences(found: Benchmark) -> list[str]:
    figure = difference_figure(found.rows, found.baseline)
    caption = (
        "Differences in mean class accuracy with their paired 95 % intervals. Blue: "
        "shown, p below 0.05 after Holm. Grey: not shown."
    )
    drawn = [_figure(figure, caption)] if figure else []
    return [*drawn, difference_table(found).html()]


def _site(found: Benchmark) -> list[str]:
    table = site_table(found)
    if table is None:
        return []
    return [*(_paragraph(one) for one in site_sentences(found)), table.html()]


def _answers(found: Benchmark) -> list[str]:
    """ROC, confusion and reliability of each method by one probe."""
    said = (
        "For each method its own answer, else the linear one, else that of the nearest "
        "neighbours. ROC: one class against the rest, mean over folds, with the area. "
        "Confusion: the share of each class by answer, below it slides (mean over "
        "runs). Reliability: how often an answer of some confidence is right; larger "
        "dots are more slides, and on the dashed line confidence is accuracy."
    )
    body = [_paragraph(said, "note")]
    for row in shown_rows(found):
        figures = (
            roc_figure(row, found.classes),
            confusion_figure(row, found.classes),
            reliability_figure(row),
        )
        body.append(_method(line_name(row.line), figures))
    return body if len(body) > 1 else []


def shown_rows(found: Benchmark) -> list[BenchmarkRow]:
    """One row per features and method: by the probe that says most."""
    order = {OWN: 0, LINEAR: 1, KNN: 3}
    best: dict[tuple[str, str], BenchmarkRow] = {}
    for row in found.rows:
        key = (row.line.features, row.line.method)
        held = best.get(key)
        if row.runs and (
            held is None or order.get(row.line.probe, 2) < order.get(held.line.probe, 2)
        ):
            best[key] = row
    return list(best.values())


def _more(found: Benchmark) -> list[str]:
    patients = patient_table(found)
    return [more_scores(found).html(), *([patients.html()] if patients else [])]


def _maps(found: Benchmark) -> list[str]:
    if not found.maps:
        return []
    said = (
        "Slides whose embeddings are alike are near (t-SNE; distances between groups "
        "mean little). Models of the first fold and seed: slides with a dark rim were "
        "not learned from there, the others were. The answers are out of fold."
    )
    body = [_paragraph(said, "note")]
    for one in found.maps:
        name = f"{one.features} · {one.method}" if one.features else one.method
        figures = map_figures(found, one)
        if figures:
            body.append(_method(name, figures))
        else:
            body.append(
                _paragraph(f"{name}: too few slides, or no two embeddings differ.")
            )
    return body


def _ablations(found: Benchmark) -> list[str]:
    body = []
    for one in found.ablations:
        body.append(ablation_table(one.title, one.rows).html())
        if one.is_ordered:
            caption = "Mean class accuracy with its 95 % interval over patients."
            body.append(_figure(ablation_figure(one), caption))
    return body


def _controls(found: Benchmark) -> list[str]:
    table = control_table(found)
    if table is None:
        return []
    return [table.html(), *_listed([control_sentence(one) for one in found.controls])]


def _attention(found: Benchmark) -> list[str]:
    figures = []
    for one in found.attention:
        share = "" if one.share is None else f" ({one.share:.2f})"
        answer = (
            f"; {one.method} answers {one.predicted}{share}" if one.predicted else ""
        )
        right = "" if not one.predicted or one.predicted == one.label else ": wrong"
        caption = f"{one.name}, {one.label}{answer}{right}"
        figure = attention_figure(one)
        if figure:
            figures.append(_figure(figure, caption))
    if not figures:
        return []
    said = (
        "Attention on slides that the model had not learned from, a square per patch: "
        f"1 × is a patch like any other. {NOT_WHERE}"
    )
    return [_paragraph(said, "note"), f'<div class="trio">{"".join(figures)}</div>']


def _positions(found: Benchmark) -> list[str]:
    if found.position_similarity is None:
        return []
    caption = (
        "Each square is of the patch at the named row and column: the cosine "
        "similarity of its learned position embedding to those of all patches of the "
        "grid."
    )
    return [_figure(position_figure(found.position_similarity), caption)]


def _failed(found: Benchmark) -> list[str]:
    if not found.failed:
        return []
    shown = found.failed[:MOST_FAILED]
    rows = "".join(
        f"<tr><td>{escape(one.cell)}</td><td>{escape(one.why)}</td></tr>"
        for one in shown
    )
    rest = len(found.failed) - len(shown)
    more = [_paragraph(f"And {rest} more, in results.json.")] if rest else []
    return [
        '<table class="scores plain"><thead><tr><th>cell</th><th>why</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>",
        *more,
    ]


def _meaning(found: Benchmark) -> list[str]:
    return [f'<table class="plain">{fact_rows(meaning(found))}</table>']


def _provenance(found: Benchmark) -> list[str]:
    facts = (
        ("Divided", found.divisions.kind.value),
        ("Folds", found.folds),
        ("Repeats", found.repeats),
        ("Seeds", ", ".join(str(seed) for seed in found.seeds)),
        *((name, value) for name, value in found.hashes.items()),
        ("Time", _duration(found.seconds) if found.seconds else ""),
        ("Versions", made_by()),
        ("Made on", time.strftime("%Y-%m-%d %H:%M %z")),
    )
    body = [f'<table class="plain">{fact_rows(facts)}</table>']
    if found.command:
        body.append(f"<p>The command:</p><pre>{escape(found.command)}</pre>")
    if found.settings:
        text = yaml.safe_dump(found.settings, sort_keys=False, allow_unicode=True)
        body.append(f"<p>All settings:</p><pre>{escape(text)}</pre>")
    body += [
        _paragraph(
            "Beside this page: tables.md and tables.csv (the tables), results.json "
            "(every value), predictions.csv (every answer out of fold) and splits.json "
            "(which slides were learned from and tested)."
        ),
        _paragraph(f"Please cite: {CITATION}"),
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
    ]
    return body


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{minutes:.1f} minutes" if minutes >= 1 else f"{seconds:.0f} seconds"


def _method(title: str, figures: Sequence[str]) -> str:
    """A method's figures side by side; on paper they stay together."""
    return (
        f'<div class="method"><h3>{escape(title)}</h3>'
        f'<div class="trio">{"".join(figures)}</div></div>'
    )


def _paragraph(text: str, kind: str = "") -> str:
    opened = f' class="{kind}"' if kind else ""
    return f"<p{opened}>{escape(text)}</p>"


def _listed(items: list[str]) -> list[str]:
    if not items:
        return []
    return ["<ul>" + "".join(f"<li>{escape(one)}</li>" for one in items) + "</ul>"]


def _figure(drawn: str, caption: str) -> str:
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"
