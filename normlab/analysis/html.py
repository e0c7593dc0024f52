"""Pages of their own: HTML with everything inside, from the templates beside this file; text is always escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from normlab.analysis.verdicts import VERDICTS

if TYPE_CHECKING:
    from normlab.analysis.article_tables import ArticleTable

# Nothing may be fetched and nothing may run: what a page shows stands in it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_MIME = {"png": "image/png", "svg": "image/svg+xml"}


@cache
def environment() -> Environment:
    """The templates' environment: escaping on, an unknown name is an error."""
    made = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {"policy": POLICY, "verdicts": VERDICTS, "slug": slug}
    return made


def _template(name: str) -> str:
    return (files("normlab.analysis") / "templates" / name).read_text(encoding="utf-8")


def render_page(template: str, **values: Any) -> str:
    """A page from a template, the style sheet inside; the same values give the same text."""
    return environment().get_template(template).render(style=_template("page.css"), **values)


def tables_page(tables: Sequence[ArticleTable], compare: bool) -> str:
    """Tables of the article as one page."""
    lang = tables[0].lang
    title = ", ".join(table.layout.place(lang) for table in tables)
    return render_page("tables.html", title=title, tables=tables, compare=compare, lang=lang)


def data_uri(content: bytes, suffix: str) -> str:
    """An image as a `data:` address."""
    return f"data:{_MIME[suffix]};base64,{base64.b64encode(content).decode()}"


def slug(text: str) -> str:
    """A verdict as the name of a class."""
    return text.replace(" ", "-")
