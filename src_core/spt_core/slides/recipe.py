"""Which channels of a slide become the red, green and blue that an encoder sees.

A recipe is a few words, stated by feature files and model cards alike:

- ``rgb``: the picture in colour as it is
- ``colours NAME #RRGGBB, ...``: all channels, added up in their own colours
- ``srh``: stimulated Raman histology, CH3 - CH2 + 5000, CH2 and CH3 of 65,536
- ``DAPI,FITC,TRITC`` or ``1,3,2``: channels that somebody chose, each stretched from
  its 1st to its 99.9th percentile on the slide (a picture's red, green and blue are
  taken as they are)

The last two can be asked for.
"""

from collections.abc import Sequence

from spt_core.errors import InputError

RGB_RECIPE, SRH_RECIPE = "rgb", "srh"
_COLOURS = "colours "
_MOST = 3


class RecipeError(InputError):
    """A slide has not the channels that are asked for."""


def asked_recipe(text: str | None) -> str | None:
    """The same recipe in its one spelling; None where nothing is asked for."""
    parts = [part.strip() for part in (text or "").split(",")]
    if parts == [""]:
        return None
    if not all(parts) or len(parts) > _MOST:
        raise InputError(
            f"Channels are one to three names or numbers with commas between them, or "
            f"{SRH_RECIPE}, not {text!r}."
        )
    if len(parts) == 1 and parts[0].lower() == SRH_RECIPE:
        return SRH_RECIPE
    return ",".join(parts)


def to_ask_for(recipe: str | None) -> str | None:
    """What a slide must be asked for, to be seen by a recipe; None is nothing."""
    if not recipe or recipe == RGB_RECIPE or recipe.startswith(_COLOURS):
        return None
    return recipe


def own_colours(names: Sequence[str], colours: Sequence[tuple[int, int, int]]) -> str:
    """The recipe of channels that nobody chose from."""
    both = zip(names, colours, strict=True)
    return _COLOURS + ", ".join(
        f"{name} #{red:02x}{green:02x}{blue:02x}" for name, (red, green, blue) in both
    )


def picture_channels(recipe: str) -> tuple[int, ...]:
    """The same of a picture in colour, whose channels are red, green and blue."""
    if recipe == SRH_RECIPE:
        raise RecipeError(
            "is a picture in colour: stimulated Raman histology needs its two channels "
            "of 16 bits."
        )
    return find_channels(recipe, ("red", "green", "blue"))


def find_channels(recipe: str, names: Sequence[str]) -> tuple[int, ...]:
    """The numbers, from 0, of the channels that a recipe asks for.

    Raises
    ------
    RecipeError
        A sentence without its beginning, which is the slide's name.
    """
    known = [name.strip().lower() for name in names]
    found = []
    for part in recipe.split(","):
        if known.count(part.lower()) == 1:
            found.append(known.index(part.lower()))
        elif part.isdecimal() and 1 <= int(part) <= len(names):
            found.append(int(part) - 1)
        else:
            listed = ", ".join(f"{i} {name}" for i, name in enumerate(names, 1))
            why = "several channels" if part.lower() in known else "no channel"
            raise RecipeError(
                f"has {why} {part!r}. Its channels are: {listed}. Choose by name or "
                "number."
            )
    return tuple(found)
