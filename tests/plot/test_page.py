"""Pages of a report: whole, safe against what is in names, and without a network."""

import numpy as np
from matplotlib.figure import Figure

from nestedvi.plot.page import (
    Section,
    facts,
    figures,
    paragraphs,
    sentences,
    style,
    table,
    write_page,
)
from tests.helpers.html import check_page, numbers_of, text_of


def small_figure():
    with style():
        figure = Figure(figsize=(2, 1))
        figure.subplots().plot([1, 2], [3, 4])
    return figure


def test_a_page_is_whole_and_its_numbers_are_in_it(tmp_path):
    data = {"log_Z": np.float64(1.25), "names": ["</script><b>"], "khat": float("nan")}
    body = facts({"log Z": "1.25"}) + figures({"a": small_figure(), "b": small_figure()})
    path = write_page(tmp_path / "a.html", "A <title>", [Section("One & two", body)], data)
    page = path.read_text(encoding="utf-8")
    check_page(page)
    assert numbers_of(page) == {"log_Z": 1.25, "names": ["</script><b>"], "khat": None}
    assert "A <title> One & two log Z 1.25" in text_of(page)
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_never_markup():
    odd = "<script>alert(1)</script> & [x]"
    made = (
        paragraphs(odd)
        + sentences([odd], otherwise="")
        + sentences([], otherwise=odd)
        + facts({odd: odd})
        + table((odd,), [(odd,)])
        + figures({odd: small_figure()})
    )
    assert "<script" not in made and made.count("&lt;script&gt;") >= 8


def test_warnings_and_their_absence_look_different():
    assert "warning" in sentences(["It is off."], otherwise="fine")
    fine = sentences([], otherwise="fine")
    assert "warning" not in fine and "fine" in fine


def test_figures_take_the_colours_of_the_page_and_are_the_same_every_time():
    """Text stays text; two figures share no id; no date or version is written into them."""
    drawn = figures({"a": small_figure()})
    assert drawn == figures({"a": small_figure()})
    assert "<text" in drawn and "var(--" in drawn and "<metadata" not in drawn
    assert ' width="' not in drawn.split("<defs")[0]
