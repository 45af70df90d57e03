"""Where the labels of a study come from: a file and its columns, or a table here."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.slides.names import slide_name
from spt_core.tokens import layout
from spt_core.tokens.tables import Row, guessed_columns, read_cells, write_table

MEANINGS = ("slide", "label", "patient", "site", "split", "mpp")
MEANING_WORDS = {
    "slide": "Slide",
    "label": "Label",
    "patient": "Patient",
    "site": "Site",
    "split": "Train or test",
    "mpp": "Pixel size, µm",
}


@dataclass(frozen=True)
class LabelsSource:
    """
    Attributes
    ----------
    file
        A table of slides; "" without.
    columns
        Which of its columns means what; without, as they are guessed.
    table
        Labels that were given here: by slide, the cells by their meaning.
    """

    file: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: str | None) -> "LabelsSource":
        """A file with its columns as they are guessed."""
        if not path:
            return cls()
        try:
            header, _ = read_cells(Path(path))
        except (InputError, OSError):
            return cls(file=str(path))
        return cls(file=str(path), columns=guessed_columns(header))

    @property
    def is_given(self) -> bool:
        return bool(self.file) or any(row.get("label") for row in self.table.values())

    @property
    def as_it_is(self) -> str:
        """The file, where it can be read without a word on its columns."""
        if not self.file:
            return ""
        named = {name: column.lower() for name, column in self.columns.items()}
        is_plain = all(name == column for name, column in named.items())
        return self.file if is_plain or not named else ""

    def problem(self) -> str:
        if self.file and self.columns:
            for name in ("slide", "label"):
                if not self.columns.get(name):
                    words = MEANING_WORDS[name].lower()
                    return f"Say which column of the labels holds the {words}."
        return ""

    def rows(self) -> list[Row]:
        """One per slide, by meaning."""
        if not self.file:
            return [
                {"slide": name, **row}
                for name, row in self.table.items()
                if row.get("label")
            ]
        header, cells = read_cells(Path(self.file))
        place = {
            name: header.index(column)
            for name, column in self.columns.items()
            if column in header
        }
        return [
            {name: row[at].strip() for name, at in place.items() if at < len(row)}
            for row in cells
            if any(row)
        ]

    def write(self, path: Path) -> None:
        rows = self.rows()
        used = [name for name in MEANINGS if any(row.get(name) for row in rows)]
        write_table(path, used or ["slide", "label"], rows)

    def summary(self) -> str:
        """How many slides of which label, a sentence."""
        counts = Counter(row.get("label", "") for row in self.rows())
        bare = counts.pop("", 0)
        shown = ", ".join(f"{name} {n}" for name, n in counts.most_common(6))
        more = ", …" if len(counts) > 6 else ""
        rest = f"; {bare} without" if bare else ""
        return f"{sum(counts.values())} labelled slides: {shown}{more}{rest}."

    def plain(self) -> dict[str, Any]:
        """Without the table: patients are remembered nowhere but in the study."""
        return {"file": self.file, "columns": dict(self.columns)}

    @classmethod
    def from_plain(cls, plain: Any) -> "LabelsSource":
        if not isinstance(plain, Mapping):
            return cls()
        file, columns = plain.get("file"), plain.get("columns")
        if not isinstance(file, str) or not file or not Path(file).exists():
            return cls()
        if not isinstance(columns, Mapping):
            return cls.of_file(file)
        return cls(file, {str(k): str(v) for k, v in columns.items()})


def name_of(path: Path) -> str:
    """What a slide's file, or its features', is called in the labels."""
    return slide_name(path.name.removesuffix(layout.ENDING))
