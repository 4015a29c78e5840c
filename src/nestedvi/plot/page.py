"""One HTML page that opens without a network: text, tables, figures as inline SVG, and the numbers
behind them as JSON. It lays out what it is given, and refuses to know what the numbers mean.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from nestedvi.plot.figures import ACCENT, INK, QUIET
from nestedvi.storage.files import to_json, write_text

__all__ = ["Section", "facts", "figures", "paragraphs", "sentences", "table", "write_page"]

# Text stays text, so that it can be searched and read at any size.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.formatter.useoffset": False,
}
_VARIABLES = {INK: "var(--ink)", ACCENT: "var(--accent)", QUIET: "var(--quiet)"}

_CSS = """
:root { color-scheme: light dark; --ink: #1f3b57; --accent: #c23b4e; --quiet: #75828f;
  --paper: #ffffff; --card: #f4f6f8; --good: #1d7a4f; }
@media (prefers-color-scheme: dark) { :root { --ink: #dbe4ee; --accent: #ff7d8d;
  --quiet: #93a1b0; --paper: #14191f; --card: #1e252d; --good: #5fcf9b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.5rem; }
h2 { margin: 2rem 0 .5rem; font-size: 1.15rem; }
p { margin: .4rem 0; max-width: 46rem; }
.quiet { color: var(--quiet); }
.box { margin: .8rem 0; padding: .6rem .9rem; background: var(--card);
  border-left: 4px solid var(--good); max-width: 46rem; }
.box.warning { border-color: var(--accent); }
.box ul { margin: 0; padding-left: 1.1rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .6rem;
  margin: .8rem 0; padding: 0; }
.facts div { background: var(--card); padding: .5rem .8rem; }
.facts dt { font-size: .8rem; color: var(--quiet); }
.facts dd { margin: 0; font-size: 1.05rem; font-variant-numeric: tabular-nums; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr));
  gap: .8rem; margin: .8rem 0; }
figure { margin: 0; padding: .4rem; background: var(--card); }
figure svg { display: block; width: 100%; height: auto; font-family: system-ui, sans-serif; }
figcaption { padding: 0 .4rem .2rem; font-size: .85rem; color: var(--quiet); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .4rem 0;
  font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.words th, .words td { text-align: left; white-space: normal; }
thead th { border-bottom: 1px solid var(--quiet); font-weight: 600; }
code { font-size: .9em; }
details { margin: .8rem 0; }
summary { cursor: pointer; }
"""


class Section(NamedTuple):
    """A heading and what stands under it, as HTML."""

    title: str
    body: str


def paragraphs(*texts: str, quiet: bool = False) -> str:
    """Plain texts, a paragraph each."""
    style = ' class="quiet"' if quiet else ""
    return "".join(f"<p{style}>{escape(text)}</p>" for text in texts)


def sentences(texts: Sequence[str], *, otherwise: str) -> str:
    """A box of warnings, or `otherwise` where there are none."""
    if not texts:
        return f'<div class="box" role="status">{escape(otherwise)}</div>'
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<div class="box warning" role="alert"><ul>{items}</ul></div>'


def facts(named: Mapping[str, str]) -> str:
    """A few numbers in large type, each with its name."""
    items = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in named.items()
    )
    return f'<dl class="facts">{"".join(items)}</dl>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, words: bool = False) -> str:
    """A table that scrolls by itself where the screen is narrow; of numbers, or of words."""
    kind = ' class="words"' if words else ""
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(x))}</td>" for x in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table{kind}><thead><tr>{first}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figures(drawn: Mapping[str, Figure]) -> str:
    """Figures side by side where there is room, each with its caption."""
    items = (
        f"<figure>{_svg(figure, caption)}<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, figure in drawn.items()
    )
    return f'<div class="grid">{"".join(items)}</div>'


def style() -> Any:
    """The settings that figures of a page are made with: a context."""
    return mpl.rc_context(_STYLE)


def _svg(figure: Figure, caption: str) -> str:
    """The figure as SVG whose colours are those of the page, light or dark."""
    file = io.StringIO()
    # Names inside an SVG are those of the whole page: the caption makes them unique.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": caption}):
        figure.savefig(file, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    # Matplotlib numbers groups from 1 in every figure; nothing refers to them.
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    label = escape(caption, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def write_page(
    path: str | Path, title: str, sections: Sequence[Section], data: Mapping[str, Any]
) -> Path:
    """Writes the page, whole or not at all; `data` is inside it as JSON, under the id "data"."""
    path = Path(path)
    body = "".join(
        f"<section><h2>{escape(section.title)}</h2>{section.body}</section>" for section in sections
    )
    # In HTML a script ends at the first "</", even within a string.
    numbers = to_json(dict(data)).replace("</", "<\\/")
    write_text(
        path,
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}"
        f'<script type="application/json" id="data">{numbers}</script></body></html>\n',
    )
    return path
