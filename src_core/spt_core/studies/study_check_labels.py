"""What to know of a study's labels: classes, patients, folds and sites."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from spt_core.studies.set_aside import MIN_PATIENTS
from spt_core.studies.study_finding import About, Finding, doubtful, fine, some, stop
from spt_core.studies.study_settings import StudySettings
from spt_core.tokens.labels import Labels, SlideLabel

# With fewer, intervals are so wide that they say little.
FEW_PATIENTS = 30


def label_findings(
    settings: StudySettings, labels: Labels, slides: Collection[str]
) -> list[Finding]:
    """Of the labels of these slides."""
    rows = [row for name, row in labels.by_slide.items() if name in slides]
    labelled = [row for row in rows if row.label]
    if not slides:
        return []
    if not labelled:
        return [
            stop(
                About.LABELS,
                "None of the slides has a label: the names in the labels are not those "
                "of the slides.",
                "Let the column 'slide' hold the names of the files, with or without "
                "their endings.",
            )
        ]
    return [
        *_names(labels, labelled, slides),
        *_patients(labels, labelled),
        *_classes(settings, labels, labelled),
        *_sites(labelled),
    ]


def _names(
    labels: Labels, labelled: list[SlideLabel], slides: Collection[str]
) -> Iterator[Finding]:
    gone = sorted(set(labels.by_slide) - set(slides))
    if gone:
        yield doubtful(
            About.LABELS,
            f"{len(gone)} slides of the labels are not there, or cannot be used: "
            f"{some(gone)}.",
            "They are left out; see whether they are named as in the folder.",
        )
    bare = len(slides) - len(labelled)
    if bare:
        yield doubtful(
            About.LABELS,
            f"{bare} of {len(slides)} slides have no label.",
            "They are learned from where no label is needed, and never tested.",
        )
    else:
        yield fine(About.LABELS, f"All {len(labelled)} slides have a label.")


def _patients(labels: Labels, labelled: list[SlideLabel]) -> Iterator[Finding]:
    unknown = sum(not row.patient for row in labelled)
    patients = {labels.patient_of(row.slide) for row in labelled}
    for remark in labels.remarks:
        if "different labels" in remark:
            yield doubtful(About.PATIENTS, remark, "See whether that is so.")
    if unknown:
        yield doubtful(
            About.PATIENTS,
            f"The patients of {unknown} slides are not known: slides of one person "
            "may be both learned from and tested, which makes scores too high.",
            "Give a column 'patient'.",
        )
    elif len(patients) < FEW_PATIENTS:
        yield doubtful(
            About.PATIENTS,
            f"There are {len(patients)} patients: intervals will be wide, and only "
            "large differences can be shown.",
            "Add slides of more patients where you can.",
        )
    else:
        yield fine(
            About.PATIENTS, f"{len(labelled)} slides of {len(patients)} patients."
        )


def _classes(
    settings: StudySettings, labels: Labels, labelled: list[SlideLabel]
) -> Iterator[Finding]:
    of_class: dict[str, set[str]] = defaultdict(set)
    for row in labelled:
        of_class[str(row.label)].add(labels.patient_of(row.slide))
    groups = "patients" if labels.names_patients else "slides"
    counts = {name: len(found) for name, found in sorted(of_class.items())}
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    if len(counts) < 2:
        yield stop(
            About.CLASSES,
            f"The labels have one class only ({shown} {groups}).",
            "At least two are needed to tell apart.",
        )
        return
    yield fine(About.CLASSES, f"Classes by {groups}: {shown}.")
    if labels.has_splits and not settings.ignore_split:
        yield from _given_split(labelled)
        return
    small = [name for name, count in counts.items() if count < settings.folds]
    if small:
        least = min(counts.values())
        do = (
            f"Ask for {least} folds, or leave the class out."
            if least >= 2
            else "Leave the class out, or add patients."
        )
        yield stop(
            About.FOLDS,
            f"Too few {groups} for {settings.folds} folds: "
            f"{', '.join(f'{name} has {counts[name]}' for name in small)}.",
            do,
        )
        return
    learned = {
        name: count - -(-count // settings.folds) for name, count in counts.items()
    }
    scarce = [name for name, count in learned.items() if count < MIN_PATIENTS]
    if scarce:
        yield doubtful(
            About.FOLDS,
            f"{some(scarce)}: fewer than {MIN_PATIENTS} {groups} to learn from in a "
            "fold, so that none can be set aside to choose the number of steps by.",
            "The number of steps is fixed there; add patients where you can.",
        )
    else:
        yield fine(About.FOLDS, f"{settings.folds} folds that share no patient.")


def _given_split(labelled: list[SlideLabel]) -> Iterator[Finding]:
    """Patients on both sides are refused when the labels are read."""
    parts = Counter(row.split or "train" for row in labelled)
    classes = {row.label for row in labelled}
    taught = {row.label for row in labelled if (row.split or "train") == "train"}
    if not parts.get("test"):
        yield stop(
            About.FOLDS,
            "The labels have a split, and no labelled slide of it is 'test'.",
            "Name some, or test all slides in folds: --ignore-split.",
        )
    elif classes - taught:
        yield stop(
            About.FOLDS,
            "No slide of the split 'train' has the label "
            f"{some(sorted(map(str, classes - taught)))}.",
            "Give each class slides to learn from, or use --ignore-split.",
        )
    else:
        shown = ", ".join(f"{name} {count}" for name, count in sorted(parts.items()))
        yield fine(About.FOLDS, f"The split of the labels is used: {shown} slides.")


def _sites(labelled: list[SlideLabel]) -> Iterator[Finding]:
    """Whether a class can be told by its site."""
    at_site: dict[str, set[str]] = defaultdict(set)
    for row in labelled:
        if row.site:
            at_site[row.site].add(str(row.label))
    if len(at_site) < 2:
        return
    sites_of: dict[str, set[str]] = defaultdict(set)
    for site, classes in at_site.items():
        for name in classes:
            sites_of[name].add(site)
    alone = sorted(site for site, classes in at_site.items() if len(classes) == 1)
    if len(alone) == len(at_site):
        yield doubtful(
            About.SITES,
            "Every site has one class only: a model that tells the scanners apart "
            "seems to tell the classes apart.",
            "Add slides of several classes from one site; believe no score until then.",
        )
        return
    single = sorted(name for name, sites in sites_of.items() if len(sites) == 1)
    if single:
        yield doubtful(
            About.SITES,
            f"All slides of {some(single)} are of one site: its scanner and staining "
            "may be learned in place of the class.",
            "Add slides of it from other sites.",
        )
    elif alone:
        yield doubtful(
            About.SITES,
            f"{len(alone)} of {len(at_site)} sites have one class only: {some(alone)}.",
            "See in the report what the model knows of the site.",
        )
    else:
        yield fine(About.SITES, f"{len(at_site)} sites, each with several classes.")
