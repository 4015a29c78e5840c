"""What mkdocs does besides building pages: figures and tables under results/ become part of the
site.

Pages show them by the path that they have in the repository, so that one copy serves both. Here
each of them that a page refers to joins the site's files, and the path is turned into that of the
site.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"\]\((?:\.\./)+(results/[^)\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds every file under results/ that a page refers to."""
    wanted: set[str] = set()
    for page in files.documentation_pages():
        wanted |= set(_OUTSIDE.findall(page.content_string))
    for path in sorted(wanted):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns `../results/a.png` of a page in docs/ into `results/a.png`."""
    up = "../" * page.file.src_uri.count("/")
    return _OUTSIDE.sub(rf"]({up}\1", markdown)
