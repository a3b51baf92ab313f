"""The text of an e-mail's body: decoded, without headers, tags and attachments."""

import email
import email.message
import re
from html.parser import HTMLParser


def body_text(mail: str) -> str:
    """The text parts of a mail, in order; of alternatives that say the same, the plain one. '' when there is none."""
    parts = _parts(email.message_from_string(mail))
    return "\n\n".join(text for text in parts if text)


def _parts(message: email.message.Message) -> list[str]:
    if message.is_multipart():
        parts = message.get_payload()
        if message.get_content_type() == "multipart/alternative":
            plain = [part for part in parts if part.get_content_type() == "text/plain"]
            parts = plain[:1] or parts[:1]
        return [text for part in parts for text in _parts(part)]
    if message.get_content_maintype() != "text" or message.get_content_disposition() == "attachment":
        return []
    text = _decoded(message)
    return [_without_tags(text) if message.get_content_type() == "text/html" else text.strip()]


def _decoded(message: email.message.Message) -> str:
    encoding = str(message.get("content-transfer-encoding", "")).strip().lower()
    if encoding not in ("base64", "quoted-printable"):
        return message.get_payload()
    content = message.get_payload(decode=True)
    try:
        return content.decode(message.get_content_charset("latin-1"), errors="replace")
    except (LookupError, ValueError):  # a character set that nobody knows
        return content.decode("latin-1")


class _Text(HTMLParser):
    """Collects what a reader of the page would see."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag, attrs):
        self._hidden += tag in ("script", "style")
        self.seen.append("\n" if tag in ("br", "p", "tr", "div", "li") else " ")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._hidden = max(0, self._hidden - 1)

    def handle_data(self, data):
        if not self._hidden:
            self.seen.append(data)


def _without_tags(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    parser.close()
    return re.sub(r"\n\s*\n", "\n\n", re.sub(r"[^\S\n]+", " ", "".join(parser.seen))).strip()
