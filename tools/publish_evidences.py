"""Writes what the package and the docs say about evidences, from what was recorded.

    nestedvi bench evidences --out results/evidences
    python tools/publish_evidences.py

Reads results/evidences/evidences.json; writes src/nestedvi/targets/evidences.json and the table in
docs/evidences.md.
"""

import json
from pathlib import Path

from nestedvi.bench.published import publish, published_table
from nestedvi.storage.files import write_json, write_text

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "evidences" / "evidences.json"
PACKAGE = ROOT / "src" / "nestedvi" / "targets" / "evidences.json"
PAGE = ROOT / "docs" / "evidences.md"
BEGIN, END = "<!-- table: tools/publish_evidences.py writes it -->\n", "<!-- end of the table -->"


def with_table(page: str, table: str) -> str:
    """The page with its table replaced."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    """Both files anew."""
    content = publish(json.loads(RECORD.read_text(encoding="utf-8")))
    write_json(PACKAGE, content)
    write_text(PAGE, with_table(PAGE.read_text(encoding="utf-8"), published_table(content)))
    print(f"{len(content['rows'])} evidences published, {len(content['left_out'])} left out:")
    for problem, reason in content["left_out"].items():
        print(f"  {problem}: {reason}")


if __name__ == "__main__":
    main()
