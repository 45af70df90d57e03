"""What our HTML pages share: one file each, nothing loaded from outside."""

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from typing import Any

from PIL import Image

CITATION = (
    "Hou X, Jiang C, Kondepudi A, Lyu Y, Chowdury A, Lee H, Hollon T (2024). A "
    "self-supervised framework for learning whole slide representations (Slide "
    "Pre-trained Transformers). arXiv:2402.06188."
)
# Browsers then refuse to load or run anything, whatever the page holds.
_NOTHING_ELSE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#1e1e1e;background:#fff;margin:0 auto;
max-width:1080px;padding:24px}
h1{font-size:1.5rem;margin:0 0 4px}h2{font-size:1.15rem;margin:32px 0 8px}
.notice{color:#5a5a5a}.answer{font-size:1.2rem;border-left:6px solid #447;
padding:10px 16px;background:#f3f4f8}.doubt{border-color:#c4302b;background:#fbf0ef}
img{max-width:100%;height:auto}figure{margin:0}figcaption{font-size:.85rem;color:#444}
.patches{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));
gap:14px}table{border-collapse:collapse}td,th{padding:4px 14px 4px 0;text-align:left;
vertical-align:top;overflow-wrap:anywhere}th{font-weight:600;white-space:nowrap}
.bar{height:14px;display:inline-block;vertical-align:middle}code{white-space:pre-wrap;
overflow-wrap:anywhere;background:#f3f4f8;padding:2px 4px}
"""


def html_page(title: str, body: Sequence[str], style: str = "") -> str:
    """A whole page; ``body`` and ``style`` are HTML and CSS, ``title`` is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_ELSE}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def fact_rows(pairs: Sequence[tuple[str, Any]]) -> str:
    """Table rows of names and values; those without a value are left out."""
    return "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in pairs
        if value not in (None, "")
    )


def picture_data(image: Image.Image, quality: int = 0) -> str:
    """A picture as a data URL: a JPEG of this quality, or a PNG where it is 0."""
    held = io.BytesIO()
    if quality:
        image.convert("RGB").save(held, "JPEG", quality=quality)
    else:
        image.save(held, "PNG", optimize=True)
    kind = "jpeg" if quality else "png"
    return f"data:image/{kind};base64,{base64.b64encode(held.getvalue()).decode()}"


def picture_figure(image: Image.Image, caption: str, quality: int = 0) -> str:
    return (
        f'<figure><img alt="{escape(caption)}" width="{image.width}" '
        f'src="{picture_data(image, quality)}"><figcaption>{escape(caption)}'
        "</figcaption></figure>"
    )


def versions(libraries: Sequence[str]) -> str:
    """The installed libraries: ``numpy 2.1.0, torch 2.10.0``."""
    return ", ".join(f"{name} {version(name)}" for name in libraries)
