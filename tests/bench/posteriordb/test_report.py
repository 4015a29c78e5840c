"""Table and figure from made-up rows: widths, marks and sentences."""

from nestedvi.bench.posteriordb.catalogue import POSTERIORS
from nestedvi.bench.posteriordb.report import (
    label,
    posteriordb_figure,
    posteriordb_table,
    within_limits,
)


def run(off_in_sds=0.02, off_in_errors=1.3, sd_ratio=1.01, diagnosis=()):
    return {
        "worst_off_in_sds": off_in_sds,
        "worst_off_in_errors": off_in_errors,
        "worst_sd_ratio": sd_ratio,
        "log_Z": -1234.5678,
        "log_Z_stderr": 0.004,
        "cpu_seconds": 123.4,
        "diagnosis": list(diagnosis),
        "parameters": dict.fromkeys("abc"),
    }


def row(name, first, second=None, **more):
    entry = POSTERIORS[name]
    known = {"proper": entry.proper, "infinite_variance": list(entry.infinite_variance)}
    state = "answered" if first else "refused"
    return {"posterior": name, "state": state, "first": first, "second": second, **known, **more}


ROWS = [
    row("arK-arK", run(), run()),
    row("nes1972-nes", run(off_in_errors=-4.2)),
    row("kidiq-kidscore_momiq", run(off_in_sds=-0.11), {"refusal": "DensityError: no"}),
    row("eight_schools-eight_schools_noncentered", run(sd_ratio=0.89, diagnosis=["Doubtful."])),
    row("one_comp_mm_elim_abs-one_comp_mm_elim_abs", run()),
    row("garch-garch11", None, refusal="DensityError: NaN came."),
]


def test_what_is_reached():
    assert [within_limits(each) for each in ROWS] == [True, False, False, False, True, False]


def test_every_label_is_short_and_its_own():
    labels = [label(name) for name in POSTERIORS]
    assert len(set(labels)) == 45 and max(map(len, labels)) <= 25
    assert label("nes1972-nes") == "nes1972" and label("sblri-blr") == "sblri"


def test_the_table_fits_a_terminal_and_says_everything():
    text = posteriordb_table(ROWS)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 8 and max(map(len, table)) <= 80 and len({len(x) for x in table}) == 1
    assert "-1234.568±0.004" in table[2] and "±" not in table[3]
    marks = [line.split("|")[-2].strip() for line in table[2:]]
    assert marks == ["", "*", "*", "*w", "", ""]
    assert "refused" in table[-1]
    assert "5 of 6 answered, 2 within the limits, 10 CPU minutes" in text
    for sentence in (
        "- garch11: DensityError: NaN came.",
        "- eight_schools_noncentered: Doubtful.",
        "- kidscore_momiq, second answer: DensityError: no",
        "K_m and V_m have no finite variance",
    ):
        assert sentence in text


def test_the_figure_has_a_dot_for_each_answer():
    figure = posteriordb_figure(ROWS)
    assert [len(axes.collections[1].get_offsets()) for axes in figure.axes] == [5, 5, 5]
