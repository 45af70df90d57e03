"""``spt add-site``: let a model know another site, from a handful of its slides."""

import argparse
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.notice import NOT_FOR_DIAGNOSIS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Only the mean and spread of the site's tokens are kept in the model file; no "
        f"labels are needed, and no weight changes. {NOT_FOR_DIAGNOSIS}"
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path,
        help="model file that standardises tokens per site")  # fmt: skip
    add("site", metavar="NAME", type=str.strip, help="what the site is called")
    add("features", metavar="FEATURES", nargs="+", type=Path,
        help="feature files of its slides, or a folder of them")  # fmt: skip
    add("--out", metavar="FILE", type=Path,
        help="file for the model with the site (default: MODEL itself is "
        "replaced)")  # fmt: skip
    add("--replace", action="store_true",
        help="measure a site again that the model knows already")  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.learning.adding_sites import add_site
    from spt_core.learning.cohort import feature_files, open_cohort
    from spt_core.learning.model_file import load_model, save_model

    out = args.out or args.model
    if out.suffix != ".safetensors":
        raise InputError(f"--out {out.name}: a model's name ends in .safetensors.")
    model = load_model(args.model)
    files = [path for given in args.features for path in feature_files(given)]
    slides = open_cohort(list(dict.fromkeys(files)))
    model, said = add_site(model, args.site, slides, replace_known=args.replace)
    for note in (*slides.notes(), *map(Note, said)):
        console.note(note)
    save_model(out, model)
    names = model.card.standardising.site_names
    console.say(f"{out} knows {len(names)} sites: {', '.join(names)}.")
    console.record({"event": "done", "file": str(out), "sites": list(names)})
    return 0
