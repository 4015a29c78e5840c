"""What a page of a report holds, read as a browser would."""

import json
import re
from html import unescape
from html.parser import HTMLParser


def numbers_of(page):
    """The JSON inside a page."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def text_of(page):
    """What a reader sees, in one line."""
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


class _Balance(HTMLParser):
    VOID = ("meta", "br", "img", "input", "link", "hr")

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self._note(attributes)

    def handle_startendtag(self, tag, attributes):
        self._note(attributes)

    def _note(self, attributes):
        for name, value in attributes:
            if name in ("src", "href", "xlink:href"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"


def check_page(page):
    """Tags close, ids are unique, and nothing is fetched from elsewhere."""
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    assert [x for x in parser.addresses if not x.startswith(("#", "data:"))] == []
    assert "url(http" not in page and "@import" not in page
