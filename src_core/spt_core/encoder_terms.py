"""What the licences of known patch encoders forbid or ask for, as published, by name.

Whoever makes something with an encoder's features is bound by it: models carry it on.
"""

RESEARCH = "for research"
NOT_COMMERCIAL = "no commercial use"
NO_DERIVATIVES = "no sharing of the weights or of what is derived from them"

_NC_ND = (NOT_COMMERCIAL, NO_DERIVATIVES)
_TERMS: dict[tuple[str, ...], tuple[str, ...]] = {
    (RESEARCH,): ("hipt", "plip", "gigapath", "prov_gigapath"),
    _NC_ND: (
        *("uni", "uni_v1", "mahmood_uni", "uni2_h", "uni_v2", "uni2"),
        *("virchow2", "h_optimus_1", "hoptimus1", "h0_mini", "h0_mini_cls_mean"),
        *("conch", "conch_v1", "conch_v1.5", "conch_v15", "conch1_5"),
    ),
    (NOT_COMMERCIAL,): (
        *("phikon", "phikon_v2", "lunit_vits8"),
        *("kaiko_vits16", "kaiko_vits8", "kaiko_vitb16", "kaiko_vitb8"),
        "kaiko_vitl14",
    ),
    ("see its page for what is allowed",): ("genbio_pathfm",),
    ("ask its authors",): ("gpfm",),
}
_BY_NAME = {name: terms for terms, names in _TERMS.items() for name in names}


def terms_of(encoder: str | None) -> tuple[str, ...]:
    """The terms of an encoder by its own name or another tool's; empty where none."""
    return _BY_NAME.get((encoder or "").lower().replace("-", "_"), ())


def terms_sentence(encoder: str | None, terms: tuple[str, ...] = ()) -> str:
    """What is said when something made with an encoder is written; often nothing."""
    terms = terms or terms_of(encoder)
    if not terms:
        return ""
    whose = f"the patch encoder {encoder}" if encoder else "its patch encoder"
    return f"The terms of {whose} go for this too: {', '.join(terms)}."
