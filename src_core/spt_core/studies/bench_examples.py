"""What a benchmark shows besides numbers: maps of slides, positions, attention."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.learning.model_file import load_model
from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.studies.bench import Bench
from spt_core.studies.bench_rows import Results, runs_of
from spt_core.studies.benchmark_positions import position_similarity
from spt_core.studies.benchmark_result import AttentionExample, SlideMap
from spt_core.studies.cell_work import seen_by
from spt_core.studies.cells import Cell
from spt_core.studies.methods import KNN

EXAMPLES = 6


def slide_maps(bench: Bench, results: Results) -> list[SlideMap]:
    found = []
    for features in bench.cohorts:
        for method in bench.settings.all_methods():
            cells = bench.cells_of(features, method.name)
            first = cells[0]
            if first not in results:
                continue
            done = [cell for cell in cells if cell in results and cell.seed == 0]
            first_folds = [cell for cell in done if cell.repeat == 0]
            run = runs_of(bench, results, first_folds, KNN)[0, 0]
            predicted = np.where(run.fold >= 0, run.shares.argmax(axis=1), -1)
            shown = features if len(bench.cohorts) > 1 else ""
            found.append(
                SlideMap(
                    method.name,
                    shown,
                    results[first].h,
                    run.fold == first.fold,
                    predicted,
                )
            )
    return found


def _shown_model(bench: Bench, results: Results) -> Cell | None:
    """The first cell of an SPT method whose model was kept."""
    for method in bench.settings.all_methods():
        if not method.learns or not method.is_spt:
            continue
        cell = bench.cells_of(next(iter(bench.cohorts)), method.name)[0]
        if cell in results and bench.folder.model(cell).exists():
            return cell
    return None


def positions_of(bench: Bench, results: Results) -> NDArray[np.floating] | None:
    cell = _shown_model(bench, results)
    if cell is None:
        return None

    encoder = load_model(bench.folder.model(cell)).encoder
    return position_similarity(encoder) if isinstance(encoder, SlideEncoder) else None


def attention_examples(
    bench: Bench, results: Results, names: Sequence[str]
) -> list[AttentionExample]:
    """Asked slides of the first fold, of each class in turn."""
    cell = _shown_model(bench, results)
    if cell is None:
        return []
    model = load_model(bench.folder.model(cell))
    encoder, result = model.encoder, results[cell]
    cohort = seen_by(model, bench.cohorts[cell.features])
    y = cohort.class_numbers()[bench.labelled]
    by_class = [
        [int(row) for row in result.asked if y[row] == number]
        for number in range(len(cohort.classes))
    ]
    turns = [rows[i] for i in range(EXAMPLES) for rows in by_class if i < len(rows)]
    probe = next(iter(result.shares))
    place = {int(row): i for i, row in enumerate(result.asked)}
    found = []
    for row in turns[:EXAMPLES]:
        slide = cohort[int(bench.labelled[row])]
        x = torch.from_numpy(np.asarray(slide.tokens(), np.float32))
        with torch.no_grad():
            _, attention = encoder.attend(x, torch.from_numpy(slide.p))
        shares = result.shares[probe][place[row]]
        found.append(
            AttentionExample(
                name=names[row],
                p=slide.p.astype(np.int64),
                attention=attention.mean(dim=0).float().cpu().numpy(),
                label=cohort.classes[y[row]],
                predicted=cohort.classes[int(shares.argmax())],
                share=float(shares.max()),
                method=cell.method,
            )
        )
    return found
