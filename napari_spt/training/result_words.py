"""What a result says in the window; the report's own sentences without its jargon."""

import re

from napari_spt.training.words import plain
from spt_core.studies.study_report import StudyReport

METHODS = {
    "mean": "Averaging patches",
    "max": "Largest values",
    "abmil": "Attention pooling (ABMIL)",
    "classify": "Your model",
    "pretrained-classify": "Your model",
    "finetune": "Your model",
    "ssspt-simclr": "Your model",
    "ssspt-vicreg": "Your model",
    "ssspt-byol": "Your model",
}
# Ten neighbours vote. Where they are a large part of all slides, a site of few slides
# loses the vote whatever the model knows of it.
FEW_SLIDES = 60
TOO_FEW_TO_TELL = (
    "With so few slides that does not show that it knows nothing of the site: measure "
    "it with more slides of each."
)
_SAID = (
    (
        r" can be chance \(p = [^)]* after Holm\)",
        ", too few patients to rule out chance",
    ),
    (
        r"Mean class accuracy (\S+ %) \(([^)]*)\), of [^,]*, on slides",
        r"\1 right, as the mean over labels (\2), on slides",
    ),
    (r"\bits embeddings\b", "what it makes of slides"),
    (r"Pre-training was", "Learning without labels was"),
    (
        r"Use it by 'spt study [^']*', or 'spt encode'\.",
        "“Use it in a new study” reads slides with it.",
    ),
)


def in_window(sentence: str) -> str:
    """A sentence of the report; numbers stay with their per cent."""
    for found, words in _SAID:
        sentence = re.sub(found, words, sentence)
    return re.sub(r"(\d) %", "\\1\u00a0%", plain(sentence))


def sentences(report: StudyReport) -> tuple[list[str], list[str]]:
    """What else stands first, and what stands last; the site has its own place."""
    said = [one for one in report.says[1:] if "the site of a slide" not in one]
    said = [in_window(one) for one in said]
    first = said[: max(0, len(report.rows) - 1)]
    return first, said[len(first) :]


def calibration_words(report: StudyReport) -> str:
    """Whether its numbers mean what they say."""
    if report.calibration_error is None:
        return "On the line, an answer of 80 % is right in 80 of 100 slides."
    error = report.calibration_error
    how = "well" if error < 0.05 else "roughly" if error < 0.15 else "badly"
    return (
        f"What it says of its sureness fits {how}: on average it is off by "
        f"{100 * error:.0f} points. Few slides make this uncertain."
    )


def site_words(report: StudyReport) -> str:
    """What neighbours tell of the site beside the class."""
    if report.site_knn is None or report.class_knn is None:
        return ""
    said = (
        f"By the most similar slides of other patients, the site is told in "
        f"{report.site_knn * 100:.0f} % and the label in "
        f"{report.class_knn * 100:.0f} % (mean over sites and over labels)."
    )
    if report.knows_site_better:
        return (
            f"{said} It knows the site better than the label: it holds much of scanner "
            "and staining, and where a label is commoner at one site, it may answer by "
            "the site. Test it on slides of another site before you believe it."
        )
    if len(report.answers) < FEW_SLIDES:
        return f"{said} {TOO_FEW_TO_TELL}"
    return f"{said} It knows the label better than the site."
