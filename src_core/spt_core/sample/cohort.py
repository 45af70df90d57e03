"""A cohort of sample slides: patients, sites and tumours."""

from collections.abc import Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spt_core.csv_files import write_csv
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.sample.layout import SlideSpec, plan
from spt_core.sample.slide_file import painters, write_slide
from spt_core.sample.stain import Site, batch_of, make_site
from spt_core.sample.tissue import MINORITY, TUMOUR_SHARES, TUMOURS
from spt_core.sample.truth import write_truth

SITES = 5
SIZE = 8192
SMALLEST = 4096
LARGEST = 400_000
MOST_SLIDES_A_PATIENT = 3


@dataclass(frozen=True)
class Case:
    """One slide of a cohort."""

    slide: str
    label: str
    patient: str
    site: str
    spec: SlideSpec


def check_size(size: int) -> None:
    """Refuse sizes too small to show tissue, or too large for a file."""
    if not SMALLEST <= size <= LARGEST:
        raise InputError(
            f"A sample slide of {size:,} px per side cannot be made: choose a size "
            f"from {SMALLEST:,} to {LARGEST:,} px."
        )


def make_sites(count: int, seed: int) -> list[Site]:
    """Sites that look different: stains are spread out rather than drawn at random."""
    rng = np.random.default_rng((seed, 11))
    return [
        make_site(f"site-{chr(ord('a') + k)}", (k + 0.5) / count, rng)
        for k in range(count)
    ]


def make_cases(
    slides: int,
    size: int,
    seed: int,
    sites: int = SITES,
    tumour: str = MINORITY,
) -> list[Case]:
    """Assign patients to tumours and sites, so that neither predicts the other."""
    check_size(size)
    if slides < 1:
        raise InputError("A cohort has at least one slide: choose 1 or more.")
    if not 1 <= sites <= 26:
        raise InputError(f"{sites} sites cannot be made: choose 1 to 26 of them.")
    if tumour not in TUMOUR_SHARES:
        raise InputError(
            f"Tumour is the {' or '.join(TUMOUR_SHARES)} of the tissue, not {tumour!r}."
        )
    rng = np.random.default_rng((seed, 12))
    places = make_sites(sites, seed)
    kinds = list(TUMOURS)
    made = dict.fromkeys(kinds, 0)
    # Slides of each kind at each site so far; the next patient goes where few are.
    crossed = np.zeros((len(kinds), sites), int)
    dealt: list[tuple[str, int, int]] = []  # kind, patient, site
    patient = 0
    while len(dealt) < slides:
        kind = min(kinds, key=lambda k: (made[k], kinds.index(k)))
        row = kinds.index(kind)
        site = int(np.argmin(crossed[row] + rng.random(sites) * 0.5))
        left = slides - len(dealt)
        # The last patients even out the kinds.
        most = max(min(MOST_SLIDES_A_PATIENT, -(-left // len(kinds))), 1)
        for _ in range(int(rng.integers(1, most + 1))):
            dealt.append((kind, patient, site))
            made[kind] += 1
            crossed[row, site] += 1
        patient += 1
    dealt = dealt[:slides]
    # Numbers say nothing about the label.
    order = rng.permutation(len(dealt))
    names = rng.permutation(patient)
    width = max(len(str(slides)), 3)
    cases = []
    for number, k in enumerate(order.tolist(), start=1):
        kind, who, where = dealt[k]
        own = int(rng.integers(2**31))
        spec = SlideSpec(
            width=size,
            height=size,
            kind=kind,
            site=batch_of(places[where], np.random.default_rng((own, 13))),
            seed=own,
            tumour=tumour,
        )
        cases.append(
            Case(
                slide=f"sample-{number:0{width}d}",
                label=kind,
                patient=f"patient-{names[who] + 1:0{width}d}",
                site=places[where].name,
                spec=spec,
            )
        )
    return cases


def write_case(
    folder: Path, case: Case, pool: Executor | None
) -> Generator[Progress, None, Path]:
    """Write one slide; its truth first, so that no slide lacks it."""
    path = folder / f"{case.slide}.tif"
    write_truth(path, case.spec, plan(case.spec))
    return (yield from write_slide(path, case.spec, pool))


def write_sample_cohort(
    folder: str | Path,
    *,
    slides: int = 30,
    size: int = SIZE,
    seed: int = 0,
    sites: int = SITES,
    tumour: str = MINORITY,
    workers: int | None = None,
) -> Generator[Progress, None, list[Path]]:
    """Write a cohort into ``folder``: slides, truth masks and ``labels.csv``.

    Yields progress in megapixels and returns the slides' paths. ``labels.csv`` comes
    last, so that a folder which has one is complete. The same seed gives the same
    bytes, whatever ``workers`` (processes; None: one per core) is. ``tumour`` says
    whether it is the minority or the majority of the tissue.
    """
    folder = Path(folder)
    cases = make_cases(slides, size, seed, sites, tumour)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose a folder for the cohort.")
    known = folder / "labels.csv"
    if known.exists():
        raise InputError(
            f"{folder} already holds a cohort ({known.name}): choose an empty folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    each = round(size * size / 1e6)
    with painters(workers) as pool:
        for number, case in enumerate(cases):
            writing = write_case(folder, case, pool)
            while True:
                try:
                    event = next(writing)
                except StopIteration as done:
                    paths.append(done.value)
                    break
                yield Progress(
                    number * each + event.done,
                    len(cases) * each,
                    event.rate,
                    f"{case.slide} ({number + 1} of {len(cases)})",
                )
    head = ("slide", "label", "patient", "site")
    write_csv(known, head, ((c.slide, c.label, c.patient, c.site) for c in cases))
    return paths
