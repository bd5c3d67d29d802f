#!/usr/bin/env python3
"""The picture of README.md: decode throughput by batch size, Reprise and its peer, with the bandwidth limit.

  tools/plot_readme.py              writes docs/images/decode-by-batch.svg from the .json beside it
  tools/plot_readme.py --check      fails when the picture is not what the figures give

The figures are copied from docs/benchmarks.md: throughput, ratio to the peer, share of the read bandwidth. From these
follow the two other lines: the peer's throughput is throughput / ratio, the limit is throughput / share. The picture
has no background and middle tones, so that it can be read on a light and on a dark page.
"""
import argparse
import json
import math
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs/images"
NAME = "decode-by-batch"

WIDTH, HEIGHT = 880, 440
PANEL_WIDTH, PANEL_LEFT, PANEL_STEP, TOP, BOTTOM = 350, 70, 430, 92, 322
TEXT, GRID = "#737d88", "#737d88"
OURS, PEER, LIMIT = "#2f81c9", "#d0702a", "#8c6bc2"


def text(x, y, content, size=13, colour=TEXT, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{content}</text>')


def line(points, colour, dash="", width=2.5):
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width}"{pattern}/>'


class Panel:
    """One diagram with logarithmic axes."""

    def __init__(self, left, panel, batches, low, high):
        self.left, self.panel, self.batches, self.low, self.high = left, panel, batches, low, high
        ours = panel["tokens_per_second"]
        self.ours = ours
        self.peer = [v / r for v, r in zip(ours, panel["times_peer"])]
        self.limit = [100 * v / s for v, s in zip(ours, panel["percent_of_read_bandwidth"])]

    def x(self, i):
        return self.left + 14 + i / (len(self.batches) - 1) * (PANEL_WIDTH - 28)

    def y(self, value):
        return BOTTOM - math.log2(value / self.low) / math.log2(self.high / self.low) * (BOTTOM - TOP)

    def points(self, values):
        return [(self.x(i), self.y(v)) for i, v in enumerate(values)]

    def limit_points(self):
        """Ends where the line leaves the diagram."""
        out = self.points(self.limit)
        for i, ((x0, y0), (x1, y1)) in enumerate(zip(out, out[1:])):
            if y1 < TOP:
                return [*out[:i + 1], (x0 + (x1 - x0) * (y0 - TOP) / (y0 - y1), TOP)]
        return out

    def draw(self, peer_name):
        right = self.left + PANEL_WIDTH
        out = [text(self.left, TOP - 14, f'{self.panel["name"]} ({peer_name}: {self.panel["peer_name"]})', 14,
                    weight="bold")]
        value = self.low
        while value <= self.high:
            out.append(f'<line x1="{self.left}" x2="{right}" y1="{self.y(value):.1f}" y2="{self.y(value):.1f}" '
                       f'stroke="{GRID}" stroke-opacity="0.25"/>')
            out.append(text(self.left - 8, self.y(value) + 4, f"{value:g}", 12, anchor="end"))
            value *= 2
        for i, b in enumerate(self.batches):
            out.append(text(self.x(i), BOTTOM + 20, str(b), 12, anchor="middle"))
        out.append(text((self.left + right) / 2, BOTTOM + 40, "sequences decoded together", 12, anchor="middle"))
        out.append(text(self.left - 8, BOTTOM + 58, "share", 12, OURS, "end"))
        out.append(line(self.limit_points(), LIMIT, "2 5", 2))
        out.append(line(self.points(self.peer), PEER, "7 5"))
        out.append(line(self.points(self.ours), OURS))
        for i, (x, y) in enumerate(self.points(self.ours)):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{OURS}"/>')
            share = f'{self.panel["percent_of_read_bandwidth"][i]} %'
            out.append(text(x, BOTTOM + 58, share, 12, OURS, "middle"))
        return out


def picture(data):
    values = [v for p in data["panels"] for v in p["tokens_per_second"]]
    least = min(v / r for p in data["panels"] for v, r in zip(p["tokens_per_second"], p["times_peer"]))
    low, high = 2 ** math.floor(math.log2(least)), 2 ** math.ceil(math.log2(max(values)))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
           f'<title>{data["title"]}</title>',
           text(20, 24, f'{data["title"]} (tokens per second)', 16, weight="bold")]
    keys = (("Reprise", OURS, "", 20), (data["peer"], PEER, "7 5", 140),
            ("limit: the read bandwidth (share: Reprise over this limit)", LIMIT, "2 5", 270))
    for name, colour, dash, at in keys:
        out += [line([(at, 44), (at + 32, 44)], colour, dash), text(at + 40, 48, name, 12)]
    for i, panel in enumerate(data["panels"]):
        out += Panel(PANEL_LEFT + i * PANEL_STEP, panel, data["batches"], low, high).draw(data["peer"])
    out += [text(20, HEIGHT - 26, data["machine"], 11), text(20, HEIGHT - 10, data["measured"], 11), "</svg>", ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the picture is another one")
    arguments = parser.parse_args()
    made = picture(json.loads((FOLDER / f"{NAME}.json").read_text(encoding="utf-8")))
    target = FOLDER / f"{NAME}.svg"
    if not arguments.check:
        target.write_text(made, encoding="utf-8")
        return 0
    same = target.is_file() and target.read_text(encoding="utf-8") == made
    print(f"{target.name} is {'up to date' if same else 'not what its figures give; run tools/plot_readme.py'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
