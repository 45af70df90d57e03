"""``spt encoders``: which patch encoders there are, and getting one."""

import argparse
from dataclasses import asdict
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.patches.encoder_card import FROM_PACKAGE, FROM_SEED, EncoderCard

_HERE_ALREADY = (FROM_PACKAGE, FROM_SEED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "get",
        nargs="?",
        choices=["get", "pack"],
        help="get: download an encoder's weights, only when asked; pack: copy the "
        "weights that are here into a folder for a computer without internet",
    )
    parser.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="names of the encoders; for pack, first the folder",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE_OR_FOLDER",
        help="get weights from a file that you have, or from a folder made by 'spt "
        "encoders pack'",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    if args.get == "pack":
        return _pack(args, console)
    if args.get and not args.name and not args.source:
        console.error("Which one? 'spt encoders get NAME'; 'spt encoders' lists them.")
        return 2
    return _get(args, console) if args.get else _list(console)


def _get(args: argparse.Namespace, console: Console) -> int:
    from spt_core.patches import obtaining, registry

    if args.source and Path(args.source).is_dir():
        for name in obtaining.unpack_encoders(Path(args.source), args.name):
            _say_ready(registry.find_card(name), console)
        return 0
    if args.source and len(args.name) != 1:
        console.error("Of which encoder is the file? 'get NAME --from FILE'.")
        return 2
    for name in args.name:
        card = registry.find_card(name)
        if args.source:
            obtaining.keep_encoder(name, Path(args.source))
        elif card.weights in _HERE_ALREADY:
            console.say(f"{card.name} needs no fetching.")
            continue
        else:
            console.follow(obtaining.get_encoder(name), unit="B")
        _say_ready(card, console)
    return 0


def _pack(args: argparse.Namespace, console: Console) -> int:
    from spt_core.patches import obtaining

    if not args.name:
        console.error("Into which folder? 'spt encoders pack FOLDER'.")
        return 2
    folder, *names = args.name
    for card in obtaining.pack_encoders(Path(folder), names):
        console.say(f"{card.name} is packed. {_licence(card)}")
    console.say(f"On the other computer: spt encoders get --from {folder}")
    return 0


def _list(console: Console) -> int:
    from spt_core.patches.listing import list_encoders
    from spt_core.patches.store import encoders_folder

    for one in list_encoders():
        card = one.card
        record = {"event": "encoder", "ready": one.is_ready, "state": one.state.value}
        console.record({**record, "how": one.how, **asdict(card)})
        console.say(
            f"{card.name:<14} {card.dim:>5} features, patches of {card.patch_size} px "
            f"at {card.mpp:g} µm  [{one.state}]\n"
            f"{'':<14} {card.about}. {_licence(card)} {card.citation}."
        )
        if card.trained_on:
            console.say(f"{'':<14} Learned from {', '.join(card.trained_on)}.")
        if one.how:
            console.say(f"{'':<14} To get it: {one.how}.")
    console.say(
        "Any model of timm works by its name, such as vit_small_patch16_224. Weights "
        f"are kept in {encoders_folder()}."
    )
    return 0


def _say_ready(card: EncoderCard, console: Console) -> None:
    console.say(f"{card.name} is ready. {_licence(card)}")


def _licence(card: EncoderCard) -> str:
    terms = f" ({', '.join(card.terms)})" if card.terms else ""
    page = f" {card.page}" if card.page else ""
    return f"Licence: {card.licence}{terms}.{page}"
