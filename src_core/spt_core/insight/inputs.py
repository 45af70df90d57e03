"""What a command was given: slides to encode first, or their features."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spt_core.errors import InputError
from spt_core.slides.names import is_slide_name, slide_name
from spt_core.tokens import layout
from spt_core.tokens.finding import features_in, is_feature_file, name_of


@dataclass(frozen=True)
class Input:
    """One slide or one feature file."""

    path: Path

    @property
    def is_features(self) -> bool:
        return is_feature_file(self.path)

    @property
    def name(self) -> str:
        if self.is_features:
            return name_of(self.path)
        return slide_name(self.path)


def find_inputs(paths: Iterable[str | Path]) -> list[Input]:
    """Slides and feature files among files and folders, in order."""
    # Here, because it is beside the encoders, which load torch.
    from spt_core.patches.folder import find_slides

    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"There is no file or folder {path}.")
        if path.is_dir() and not is_feature_file(path):
            features = features_in(path)
            found += features or find_slides([path])
        elif is_feature_file(path) or is_slide_name(path):
            found.append(path)
        else:
            raise InputError(
                f"{path.name} is neither a slide nor a feature file (*{layout.ENDING})."
            )
    return [Input(path) for path in dict.fromkeys(found)]
