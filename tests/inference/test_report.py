"""A posterior's files. The report's numbers are those of posterior.json, in a page that a real
browser shows whole at the width of a phone and of a desktop.
"""

import json
import re
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.inference.answer import Answer, Cost, LevelTrace, Trace
from nestedvi.inference.posterior import make_posterior
from nestedvi.inference.report import posterior_content, write_posterior, write_posterior_report
from nestedvi.storage.files import write_json
from tests.helpers.html import check_page, numbers_of, text_of
from tests.plot.test_training import record, write_training_report

RNG = np.random.default_rng(1)
NUM, BATCHES = 200, 4
LEVEL = LevelTrace(np.array([0.1, 0.5, 1.0]), np.array([0.3, 0.9, 0.8]))


def make(num_sites=3, trace=True, diagnosis=()):
    samples = {f"site {i}": jnp.asarray(RNG.normal(i, 1.0, NUM)) for i in range(num_sites)}
    log_Z = np.array([1.0, 1.1, 0.9, 1.05])
    answer = Answer(
        None,
        jnp.asarray(RNG.normal(0, 0.3, NUM)),
        1.0123,
        0.0456,
        num_batches=BATCHES,
        num_ancestors=170,
        diagnosis=diagnosis,
        cost=Cost(12.0, 34.0, 56.0),
        timings={"search": 1.5, "compilation": 1.0},
        trace=Trace(log_Z, np.array([40, 41, 42, 43]), (LEVEL,) * 4, np.linspace(0, 1, 101) ** 0.5)
        if trace
        else None,
    )
    return make_posterior(samples, answer)


def test_the_numbers_are_those_of_posterior_json(tmp_path):
    """All of them as JSON, and those that are shown in words."""
    posterior = make()
    content = {**posterior_content(posterior), "model": "m.py:line", "command": "nestedvi sample"}
    write_json(tmp_path / "posterior.json", content)
    path = write_posterior_report(tmp_path / "report.html", posterior, content, title="m.py:line")
    page = path.read_text(encoding="utf-8")
    check_page(page)
    assert numbers_of(page) == json.loads((tmp_path / "posterior.json").read_text())
    text = text_of(page)
    assert "log Z 1.0123 ± 0.0456" in text and "nestedvi sample" in text
    for name, values in content["sites"].items():
        cells = " ".join(f"{values[c]:.4g}" for c in ("mean", "error", "sd", "5%", "50%", "95%"))
        assert f"{name} {cells}" in text
    assert "1 1.0000 40 2 1.1000 41 3 0.9000 42 4 1.0500 43" in text
    assert text.index("Diagnosis") < text.index("Evidence") < text.index("Cost")


def test_the_method_writes_it_and_says_what_made_it(installed, tmp_path):
    path = make().report(tmp_path / "report.html", title="Mine")
    page = path.read_text(encoding="utf-8")
    assert "<h1>Mine</h1>" in page and numbers_of(page)["versions"]["nestedvi"]
    assert "Nothing found wrong." in text_of(page)
    # Three marginals and pairs; batches, temperatures, ESS, weights, ancestors.
    assert page.count("<svg") == 3 + 3 + 5


def test_the_diagnosis_comes_first(tmp_path):
    page = make(diagnosis=("It <b>is</b> odd.",)).report(tmp_path / "r.html").read_text()
    body = text_of(page)
    assert body.startswith("Posterior Posterior Diagnosis It <b>is</b> odd.")
    assert "Nothing found wrong" not in body


def test_many_sites_and_no_trace(tmp_path):
    page = make(20, trace=False).report(tmp_path / "r.html").read_text(encoding="utf-8")
    check_page(page)
    assert page.count("<svg") == 16 + 6
    assert "figures of the first 16" in text_of(page) and "no record of its batches" in page


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--allow-file-access-from-files",
    "--virtual-time-budget=20000",
]
# Frames of both widths; each is measured by what the browser has laid out.
LOOK = """<!doctype html><body><script>
const sizes = [390, 1280], pages = PAGES, seen = [];
let left = sizes.length * pages.length;
for (const page of pages) for (const width of sizes) {
  const frame = document.createElement('iframe');
  frame.style.width = width + 'px'; frame.style.height = '900px'; frame.style.border = 0;
  frame.onload = () => {
    const doc = frame.contentDocument, figures = [];
    for (const svg of doc.querySelectorAll('figure svg')) {
      const box = svg.getBoundingClientRect(), inside = r =>
        r.left > box.left - 1 && r.right < box.right + 1 &&
        r.top > box.top - 1 && r.bottom < box.bottom + 1;
      const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
      const shapes = [...svg.querySelectorAll('path, use, image')].filter(s => {
        const r = s.getBoundingClientRect(); return r.width + r.height > 1; });
      figures.push({label: svg.getAttribute('aria-label'), left: box.left, right: box.right,
        height: box.height, shapes: shapes.length, texts: texts.length,
        cut: texts.filter(t => !inside(t.getBoundingClientRect())).map(t => t.textContent),
        size: Math.min(...texts.map(t => parseFloat(doc.defaultView.getComputedStyle(t).fontSize)))
          * box.width / svg.viewBox.baseVal.width});
    }
    seen.push({page, width, scroll: doc.documentElement.scrollWidth, figures});
    if (--left === 0) document.body.innerHTML =
      '<pre>' + JSON.stringify(seen).replace(/</g, '&lt;') + '</pre>';
  };
  frame.src = page; document.body.appendChild(frame);
}
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to look at the pages with")
def test_a_browser_shows_every_figure_whole(tmp_path):
    """At 390 and 1280 pixels nothing is wider than the page, no figure is empty, and no text of a
    figure is cut or too small to read.
    """
    make(diagnosis=("A long sentence. " * 20,)).report(tmp_path / "posterior.html")
    write_training_report(
        tmp_path / "fit.html",
        record(2),
        skipped=np.zeros((2, 3), int),
        seconds=1.0,
        step_seconds=0.1,
        title="Training",
    )
    pages = sorted(path.name for path in tmp_path.glob("*.html"))
    (tmp_path / "look.html").write_text(LOOK.replace("PAGES", json.dumps(pages)))
    done = subprocess.run(
        [
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            (tmp_path / "look.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (text,) = re.findall(r"<pre>(.*)</pre>", done.stdout, flags=re.DOTALL)
    seen = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert {(look["page"], look["width"]) for look in seen} == {
        (page, width) for page in pages for width in (390, 1280)
    }
    for look in seen:
        assert look["scroll"] <= look["width"]
        assert len(look["figures"]) == {"posterior.html": 11, "fit.html": 6}[look["page"]]
        for figure in look["figures"]:
            assert 0 <= figure["left"] < figure["right"] <= look["width"], figure
            assert figure["height"] > 150 and figure["shapes"] > 5 and figure["texts"] > 2, figure
            assert figure["cut"] == [] and figure["size"] > 8, figure


@pytest.fixture
def posterior():
    z = jnp.linspace(-1.0, 1.0, 40)[:, None]
    return make_posterior(z, Answer(z, jnp.zeros(40), 0.5, 0.01))


@pytest.mark.parametrize("installed", [True, False])
def test_files_of_a_posterior(posterior, installed, tmp_path, monkeypatch):
    if installed:
        pytest.importorskip("arviz")
    else:
        monkeypatch.setitem(sys.modules, "arviz", None)
    content = {**posterior_content(posterior), "model": "m.py:line"}
    names = write_posterior(tmp_path, posterior, content)
    always = ["posterior.json", "posterior.png", "report.html"]
    assert names == always + ["posterior.nc"] * installed
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    written = json.loads((tmp_path / "posterior.json").read_text())
    assert written["log_Z"] == 0.5 and written["sites"]["z[0]"]["mean"] == pytest.approx(
        0, abs=1e-6
    )
    assert "<h1>m.py:line</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
