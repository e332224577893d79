"""Drawings for notebooks: inline SVG in the colour of the page's text, which is readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 34
# Readable on white and on black.
COLOURS = ("#3f8fd6", "#e0822f", "#3fa66a", "#c65fb0")
_STYLE = "font:11px system-ui,sans-serif;max-width:100%;height:auto"

Points = Sequence[tuple[float, float]]


def size(count: float) -> str:
    """Bytes in the unit that a reader expects: "4.8 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range."""
    span = high - low
    if not 0 < span < math.inf:
        return [low]
    raw = span / most
    step = 10 ** math.floor(math.log10(raw))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= raw)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def thinned(points: Points, most: int = WIDTH) -> Points:
    """At most two points for each of `most` columns, its least and its greatest, so that no peak is lost."""
    if len(points) <= 2 * most:
        return points
    kept: list[tuple[float, float]] = []
    for column in range(most):
        part = points[column * len(points) // most : (column + 1) * len(points) // most]
        kept += sorted({min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])})
    return kept


class Axes:
    """Draws the axes of a plot. x and y: (least, greatest) of the data."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], unit: int = 1):
        """unit: of y, 1 for numbers, or bytes, whose ticks are multiples of a power of 1,024."""
        self.x, self.y, self.unit = x, (y if y[1] > y[0] else (y[0], y[0] + 1)), unit
        self.parts: list[str] = []

    def place(self, x: float, y: float) -> str:
        across = (x - self.x[0]) / (self.x[1] - self.x[0] or 1)
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f},{HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM):.1f}"

    def line(self, points: Points, colour: str, title: str, dashes: str = "") -> None:
        drawn = " ".join(self.place(*one) for one in thinned([one for one in points if math.isfinite(one[1])]))
        self.parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dashes}">'
            f"<title>{escape(title)}</title></polyline>"
        )

    def dots(self, points: Points, colour: str) -> None:
        for x, y in points:
            if math.isfinite(y):
                across, down = self.place(x, y).split(",")
                self.parts.append(
                    f'<circle cx="{across}" cy="{down}" r="3" fill="{colour}"><title>{x:g}: {y:.6g}</title></circle>'
                )

    def area(self, points: Points, base: float, colour: str, title: str) -> None:
        """Steps: each point's value holds up to the next one's place."""
        corners = [self.place(points[0][0], base)]
        for index, (x, y) in enumerate(points):
            following = points[index + 1][0] if index + 1 < len(points) else x + 1
            corners += [self.place(x, y), self.place(following, y)]
        corners.append(self.place(points[-1][0] + 1, base))
        self.parts.append(
            f'<polygon points="{" ".join(corners)}" fill="{colour}" fill-opacity="0.75"><title>{escape(title)}</title>'
            "</polygon>"
        )

    def svg(self, title: str, below: str) -> str:
        """The drawing with its axes. below: what the horizontal axis counts."""
        lines, words = [], []
        low, high = (one / self.unit for one in self.y)
        for value in ticks(low, high):
            across, down = self.place(self.x[0], value * self.unit).split(",")
            text = size(value * self.unit) if self.unit > 1 else f"{value:g}"
            lines.append(f"M{LEFT} {down}H{WIDTH - RIGHT}")
            words.append(f'<text x="{LEFT - 6}" y="{float(down) + 4:.1f}" text-anchor="end">{text}</text>')
        for value in ticks(*self.x, most=8):
            across = self.place(value, self.y[0]).split(",")[0]
            words.append(f'<text x="{across}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{value:g}</text>')
        words.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(below)}</text>')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" style="{_STYLE}" fill="currentColor"><title>{escape(title)}</title>'
            f'<path d="{"".join(lines)}" stroke="currentColor" stroke-opacity="0.2"/>{"".join(self.parts)}{"".join(words)}</svg>'
        )


def unit_of(count: float) -> int:
    """The power of 1,024 in whose multiples a number of bytes is written."""
    return 1024 ** min(3, max(0, int(math.log(max(count, 1), 1024)))) if count >= 1024 else 1


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names beside their colours."""
    return " ".join(
        f'<span style="margin-right:1em"><span style="color:{colour}">■</span> {escape(name)}</span>'
        for name, colour in entries
    )


def table(rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{body}</table>"
