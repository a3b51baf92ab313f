"""The text of a mail's body, and nothing else of it."""

import email.message

from data.mail import body_text


def test_headers_are_left_out():
    assert body_text("Received: from somewhere\n\tby here\nSubject: Spam\n\nHello,\nyou.\n") == "Hello,\nyou."


def test_of_alternatives_the_plain_one_is_read():
    message = email.message.EmailMessage()
    message["Subject"] = "x"
    message.set_content("plain naïve")
    message.add_alternative("<p>marked up</p>", subtype="html")
    message.add_attachment(b"\0\1", maintype="image", subtype="png")
    message.add_attachment("attached text", filename="a.txt")
    assert body_text(message.as_string()) == "plain naïve"


def test_encoded_bodies_are_decoded():
    for encoding in ("base64", "quoted-printable"):
        message = email.message.EmailMessage()
        message.set_content("Größe ünd", charset="utf-8", cte=encoding)
        assert "Gr" not in message.as_string() or encoding == "quoted-printable"
        assert body_text(message.as_string()) == "Größe ünd"


def test_tags_scripts_and_entities_are_read_as_a_browser_shows_them():
    html = "<style>b {x: y}</style><p>Buy &amp; <b>save</b></p><script>alert(1)</script><p>now"
    text = body_text(f"Content-Type: text/html\n\n<html><body>{html}</body></html>")
    assert text.split() == ["Buy", "&", "save", "now"]


def test_an_unknown_character_set_does_not_stop_the_reading():
    mail = "Content-Type: text/plain; charset=no-such\nContent-Transfer-Encoding: quoted-printable\n\nabc=20d"
    assert body_text(mail) == "abc d"


def test_a_mail_without_text_gives_nothing():
    assert body_text("Content-Type: image/png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n") == ""
