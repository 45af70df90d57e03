"""metrics.csv: one header, whatever its rows know."""

import csv

from spt_core.training.run_folder import RunFolder


def rows_of(folder):
    with folder.metrics.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_follow_the_first_ones_header(tmp_path):
    folder = RunFolder(tmp_path)
    folder.add_metrics({"step": 3, "loss": 1.5, "knn": None})
    folder.add_metrics({"knn": 0.5, "loss": 1.25, "step": 6})
    assert rows_of(folder) == [
        {"step": "3", "loss": "1.5", "knn": ""},
        {"step": "6", "loss": "1.25", "knn": "0.5"},
    ]


def test_a_run_with_more_columns_goes_on_with_them(tmp_path):
    """As runs of patch training that were begun by an older version."""
    folder = RunFolder(tmp_path)
    folder.metrics.write_text(
        "step,loss,slides_per_second,patches_per_second\n3,1.5,,10.0\n6,1.0,,10.0\n"
    )
    folder.drop_metrics_after(3)
    folder.add_metrics({"step": 6, "loss": 0.5, "patches_per_second": 20.0})
    assert [row["loss"] for row in rows_of(folder)] == ["1.5", "0.5"]
    assert [row["patches_per_second"] for row in rows_of(folder)] == ["10.0", "20.0"]


def test_half_a_row_left_by_a_kill_is_dropped(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("step,loss,knn\n3,1.5,0.5\n6,1.")
    folder.drop_metrics_after(9)
    assert [row["step"] for row in rows_of(folder)] == ["3"]
