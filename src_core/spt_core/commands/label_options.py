"""The options by which commands take labels: the file, its slides, its patients."""

import argparse
from pathlib import Path

from spt_core.tokens import Labels, PatientSource, read_labels


def add_label_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--labels",
        metavar="CSV",
        type=Path,
        required=required,
        help="table with columns slide,label[,patient,site,split], or patient,label "
        "with --slide-table",
    )
    parser.add_argument(
        "--slide-table",
        metavar="CSV",
        type=Path,
        help="table with columns slide,patient, for labels of patients",
    )
    parser.add_argument(
        "--patient-from",
        choices=[source.value for source in PatientSource],
        help="take patients from the slides' names where no column gives them",
    )


def labels_from(args: argparse.Namespace) -> Labels | None:
    """The labels that the options name, if any."""
    if args.labels is None:
        return None
    return read_labels(
        args.labels, slides=args.slide_table, patients_from=args.patient_from
    )
