"""The campaign's table."""

from nestedvi.bench.campaign.report import campaign_table
from nestedvi.bench.campaign.summary import summarise_campaign
from tests.bench.campaign.test_summary import REFUSED, row


def test_totals_lines_and_what_was_left_out():
    rows = [row(0.01), row(0.5), REFUSED, {"target": "b", "method": "auto", "skipped": "no data"}]
    result = {
        "summary": summarise_campaign(rows),
        "targets": {"a": {"about": "a thing"}, "b": {"about": "another"}},
        "runs": rows,
    }
    text = campaign_table(result)
    assert "| silent failures | 1 | 1 | 0 |" in text
    assert "| refused, though there is an answer | 1 | 0 | 1 |" in text
    assert "| a | a thing | auto | +0.2550 ± 0.2450 | +0.500 | 0.0100 | 1 of 2 | 1 of 2 |" in text
    assert "| a | a thing | smc |  |  |  | 0 | 0 | 0 | 1 of 1 |" in text
    assert "Left out, since their data were not there: b." in text
