"""The plot of docs/measurements/performance.md: our step over the fastest peer's, one bar a workload, as an SVG that light and dark pages show well."""
from xml.sax.saxutils import escape

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.bar { fill: #2f81f7 } .behind { fill: #bc6c25 }
.line { stroke: #59636e; stroke-width: 1 } .grid { stroke: #d1d9e0; stroke-width: 1 }
.goal { stroke: #1a7f37; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d } .line { stroke: #9198a1 } .goal { stroke: #3fb950 }
}
"""
LEFT, WIDTH, ROW, TOP = 250, 460, 26, 46


def draw(bars):
    """`bars`: (label, peer, (ratio, least, greatest), goal or None)."""
    most = max([1.1] + [min(high, 3.0) for _, _, (_, _, high), _ in bars]) * 1.02
    x = lambda value: LEFT + WIDTH * min(value, most) / most
    bottom = TOP + ROW * len(bars)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 190} {bottom + 34}" role="img">',
             "<title>Our median step over the fastest peer's</title>", f"<style>{STYLE}</style>",
             f'<text x="{LEFT}" y="18">our median step ÷ the fastest peer\'s: shorter is faster</text>',
             f'<text class="small" x="{LEFT}" y="34">thin lines: least and greatest of a round; upright marks: goals</text>']
    tick = 0.0
    while tick <= most:
        parts += [f'<line class="{"line" if abs(tick - 1) < 1e-9 else "grid"}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 4}" y2="{bottom + 4}"/>',
                  f'<text class="small" x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick:.2f}</text>']
        tick += 0.25
    for number, (label, peer, (ratio, low, high), goal) in enumerate(bars):
        y = TOP + ROW * number
        parts += [f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(label)}</text>',
                  f'<rect class="bar{"" if ratio < 1 else " behind"}" x="{LEFT}" y="{y + 5}" width="{x(ratio) - LEFT:.1f}" height="{ROW - 10}" rx="2"/>',
                  f'<line class="line" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y + ROW / 2}" y2="{y + ROW / 2}"/>']
        if goal:
            parts.append(f'<line class="goal" x1="{x(goal):.1f}" x2="{x(goal):.1f}" y1="{y + 2}" y2="{y + ROW - 2}"/>')
        parts.append(f'<text class="small" x="{LEFT + WIDTH + 8}" y="{y + 17}">{ratio:.2f} · {escape(peer)}</text>')
    return "\n".join(parts + ["</svg>", ""])
