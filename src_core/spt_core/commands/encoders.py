"""``spt encoders``: which patch encoders there are, and fetching one."""

import argparse
from dataclasses import asdict

from spt_core.commands.console import Console
from spt_core.patches.encoder_card import FROM_PACKAGE, FROM_SEED

_HERE_ALREADY = (FROM_PACKAGE, FROM_SEED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "get", nargs="?", choices=["get"], help="download an encoder's weights"
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="name of the encoder to download"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    from spt_core.patches import registry, weights

    if args.get and not args.name:
        console.error("Which one? 'spt encoders get NAME'; 'spt encoders' lists them.")
        return 2
    if args.get:
        card = registry.find_card(args.name)
        if card.weights in _HERE_ALREADY:
            console.say(f"{card.name} needs no fetching.")
            return 0
        path = console.follow(weights.fetch(card.name, card.weights), unit="B")
        registry.load_encoder(card.name)
        console.say(f"{card.name} is ready ({path}).")
        return 0
    for card in registry.known_encoders():
        stored = weights.stored_file(card.name)
        ready = card.weights in _HERE_ALREADY or stored.exists()
        state = "ready" if ready else f"spt encoders get {card.name}"
        console.record({"event": "encoder", "ready": ready, **asdict(card)})
        console.say(
            f"{card.name:<14} {card.dim:>5} features, patches of {card.patch_size} px "
            f"at {card.mpp:g} µm  [{state}]\n"
            f"{'':<14} {card.about}. {card.licence}. {card.citation}."
        )
    console.say(
        "Any model of timm works by its name, such as vit_small_patch16_224. Weights "
        f"are kept in {weights.encoders_folder()}."
    )
    return 0
