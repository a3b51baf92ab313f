"""HTML built from tags in which every text is escaped, unless it came from a tag."""

import html


class Markup(str):
    """HTML that is escaped already. Only `tag` and `join` make it, and `raw` for what this package itself ships."""


def raw(text: str) -> Markup:
    """`text` as it is: for the package's own style and script, never for anything of a run."""
    return Markup(text)


def join(*children: str, between: str = "") -> Markup:
    """The children one after another, each escaped if it isn't Markup; '' is left out of a join with `between`."""
    shown = [child if isinstance(child, Markup) else html.escape(child) for child in children if child or not between]
    return Markup(html.escape(between).join(shown))


_VOID = {"br", "input", "meta", "wbr"}


def tag(name: str, /, *children: str, **attributes: str | float | bool) -> Markup:
    """<name attributes>children</name>.

    Attributes: a trailing '_' goes (`class_`), other '_' become '-' (`stroke_width`); True is an attribute without a
    value, False none; floats are written to two places.
    """
    shown = []
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            shown.append(f" {key}")
        elif value is not False:
            value = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
            shown.append(f' {key}="{html.escape(value)}"')
    start = f"<{name}{''.join(shown)}>"
    return Markup(start) if name in _VOID else Markup(f"{start}{join(*children)}</{name}>")
