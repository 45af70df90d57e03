"""The slides of a study by their pseudonyms: their names, and their files."""

from dataclasses import dataclass
from pathlib import Path

from napari_spt.slide_map.slide_files import likely_folders, slide_files
from napari_spt.slide_map.source_panel import Sources
from spt_core.errors import InputError
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import open_cohort
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import StudySettings
from spt_core.tokens import read_labels


@dataclass(frozen=True)
class StudySlides:
    """
    Attributes
    ----------
    names
        Of slides, by their pseudonyms.
    files
        Of slides, by their names; those that are found.
    """

    names: dict[str, str]
    files: dict[str, Path]

    def name(self, slide: str) -> str:
        return self.names.get(slide, slide)

    def file(self, slide: str) -> Path | None:
        return self.files.get(self.name(slide))


def study_sources(folder: Path) -> Sources:
    """What a map of a study's slides is made of."""
    study = StudyFolder(folder)
    settings = StudySettings.read(study.settings)
    return Sources(
        features=study.features_of(settings),
        model=study.model if study.model.exists() else None,
        labels=Path(settings.labels) if settings.labels else None,
        slides=Path(settings.slides) if settings.slides else None,
    )


def study_labels(folder: Path) -> dict[str, str]:
    """The labels of a study's slides by pseudonym, for the eye; reads its features."""
    try:
        found = study_sources(folder)
        if found.features is None or found.labels is None:
            return {}
        labels = read_labels(found.labels)
    except (InputError, OSError):
        return {}
    known = {
        slide: labels.by_slide[name].label
        for slide, name in study_slides(folder).names.items()
        if name in labels.by_slide
    }
    return {slide: label for slide, label in known.items() if label}


def study_slides(folder: Path) -> StudySlides:
    """Read the names of a study's slides; takes a while, so not in the window."""
    try:
        found = study_sources(folder)
        if found.features is None:
            return StudySlides({}, {})
        cohort = open_cohort(found.features, in_memory_bytes=0)
    except (InputError, OSError):
        return StudySlides({}, {})
    names = {pseudonym(slide.fingerprint()): slide.name for slide in cohort}
    folders = [found.slides] if found.slides else likely_folders(found.features)
    return StudySlides(names, slide_files(folders))
