"""The site builds without a warning, with every figure inside it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_picture_of_every_page_is_in_the_site(site):
    """Also those under results/, which lie outside docs/ in the repository."""
    seen = 0
    for page in site.rglob("*.html"):
        for source in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text(encoding="utf-8")):
            if source.startswith("data:"):
                continue
            assert not source.startswith("http"), f"{page} fetches {source}"
            assert (page.parent / source).resolve().is_file(), f"{page} shows {source}"
            seen += 1
    assert seen > 20


def test_the_reference_has_signatures_with_shapes(site):
    """Also of classes whose constructor is made from their fields."""
    kernels = (site / "reference" / "kernels" / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", kernels)
    assert re.search(r"Hamiltonian\(\s*step_size: Float\[Array, (?:&quot;|\")", text)
    assert "steps: int = 10" in text


def test_the_site_opens_without_a_network(site):
    """No font, script or style is fetched from elsewhere."""
    for page in (site / "index.html", site / "quickstart" / "index.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|link)[^>]*(?:src|href)="(https?://[^"]+)"', text)
        assert fetched == []
