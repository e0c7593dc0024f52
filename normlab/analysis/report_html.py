"""The report as one HTML file with everything inside: report.html."""

from __future__ import annotations

from normlab.analysis.html import data_uri, render_page
from normlab.analysis.report import Picture, Report
from normlab.analysis.report_text import HOW_TO_READ, TITLE

_LARGEST_SVG = 250_000  # bytes; above it the PNG is the smaller one to carry


def report_html(report: Report) -> str:
    """The whole page; images are inlined, nothing is fetched."""
    return render_page("report.html", report=report, title=TITLE, how_to_read=HOW_TO_READ, image=image)


def image(picture: Picture) -> str:
    """The picture as a `data:` address: sharp where that is small enough."""
    svg = picture.images.get("svg")
    if svg is not None and len(svg) <= _LARGEST_SVG:
        return data_uri(svg, "svg")
    return data_uri(picture.images["png"], "png")
