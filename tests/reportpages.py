"""Reading a report's page as a browser does."""

from html.parser import HTMLParser

HOSTILE = "</td><script>alert(1)</script><img src=//x onerror=y>\"'&\x00\u202e"


class Seen(HTMLParser):
    """Elements, their attributes and texts; a page whose tags don't match is refused."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.figures: list[tuple[dict[str, str], str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.tags.append((tag, found))
        if tag != "meta":
            self._open.append(tag)
        if tag == "data":
            self.figures.append((found, ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, text: str) -> None:
        self.texts.append(text)
        if self._open[-1:] == ["data"]:
            self.figures[-1] = (self.figures[-1][0], text)
