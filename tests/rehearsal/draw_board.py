# SPDX-License-Identifier: Apache-2.0
"""Prints a web page with the panels of a board for Grafana, drawn from Prometheus's answers to their queries.

    draw_board.py http://127.0.0.1:9090 dashboard.json SECONDS

The labels are those of the compose file. Fails if the board has a panel without an answer.
"""
import html
import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request

VARIABLES = {"$namespace": "compose", "$release": "compose", "$__rate_interval": "10s"}
WIDTH, HEIGHT, LEFT, BOTTOM = 404, 130, 56, 18  # of a panel's drawing; the margins have the labels of the axes
COLOURS = ["#3f7d3a", "#c98b00", "#2f6fb4", "#b4452f", "#7a4fa3", "#4c8f8f", "#8a6d3b"]
UNITS = {"s": (1, " s"), "ms": (1000, " ms"), "percentunit": (100, " %"), "ops": (1, "/s"), "x": (1, " x"), "short": (1, "")}
MAX_NAMED = 4  # lines of a panel that are named although they are 0 throughout
# Nothing to show while all goes well.
MAY_BE_EMPTY = {"Refusals by reason"}
STYLE = """body { font: 13px sans-serif; margin: 12px; color: #222 } h1 { font-size: 18px; margin: 14px 0 6px }
.row { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px } .panel { border: 1px solid #ccc; padding: 5px }
h2 { font-size: 13px; margin: 0 } text { font-size: 11px; fill: #555 } span { margin-right: 12px; font-size: 12px }"""


def ask(url, query, begin, end):
    """[(labels, [(time, value)])], without values that are no numbers."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    arguments = urllib.parse.urlencode({"query": query, "start": begin, "end": end, "step": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{arguments}") as answer:
        series = json.load(answer)["data"]["result"]
    series = [(entry["metric"], [(t, float(v)) for t, v in entry["values"] if v not in ("NaN", "+Inf")])
              for entry in series]
    return [(labels, values) for labels, values in series if values]


def legend_of(form, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), form)


def round_up(value):
    """1, 2, 4, 5 or 8 times a power of ten."""
    power = 10 ** math.floor(math.log10(value))
    return next(digit * power for digit in (1, 2, 4, 5, 8, 10) if digit * power >= value * 0.999)


def draw_lines(lines, unit, begin, end):
    top = max((value for _, values in lines for _, value in values), default=0) or 1
    factor, suffix = UNITS["ms" if unit == "s" and top < 1 else unit]
    top = round_up(top * factor) / factor

    def place(t, value):
        x = LEFT + (t - begin) / (end - begin) * (WIDTH - LEFT)
        return f"{x:.1f},{(1 - value / top) * (HEIGHT - BOTTOM - 6) + 6:.1f}"

    parts = [f'<svg width="{WIDTH}" height="{HEIGHT}">']
    for share in (0, 0.5, 1):
        y = (1 - share) * (HEIGHT - BOTTOM - 6) + 6
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/><text x="{LEFT - 4}" y="{y + 4}" '
                     f'text-anchor="end">{share * top * factor:g}{suffix}</text>')
    for seconds in range(0, int(end - begin), 30):
        x = LEFT + seconds / (end - begin) * (WIDTH - LEFT)
        parts.append(f'<text x="{x}" y="{HEIGHT - 4}">{seconds} s</text>')
    for i, (_, values) in enumerate(lines):
        points = " ".join(place(t, value) for t, value in values)
        parts.append(f'<polyline fill="none" stroke-width="1.5" stroke="{COLOURS[i % len(COLOURS)]}" points="{points}"/>')
    return "".join(parts) + "</svg>"


def draw_panel(url, panel, begin, end):
    lines = [(legend_of(target["legendFormat"], labels), values) for target in panel["targets"]
             for labels, values in ask(url, target["expr"], begin, end)]
    if not lines and panel["title"] not in MAY_BE_EMPTY:
        raise SystemExit(f"{panel['title']}: no answer")
    named = [any(value for _, value in values) or len(lines) <= MAX_NAMED for _, values in lines]
    legend = "".join(f'<span style="color: {COLOURS[i % len(COLOURS)]}">{html.escape(name)}</span>'
                     for i, (name, _) in enumerate(lines) if named[i])
    if unnamed := named.count(False):
        legend += f"<span>{unnamed} lines at 0</span>"
    legend = legend or "<span>none</span>"
    drawing = draw_lines(lines, panel["fieldConfig"]["defaults"]["unit"], begin, end)
    return f'<div class="panel"><h2>{html.escape(panel["title"])}</h2>{drawing}<br>{legend}</div>'


def main(url, path, seconds):
    end = time.time()
    begin, is_open = end - seconds, False
    print(f"<!DOCTYPE html><meta charset=utf-8><style>{STYLE}</style>")
    with open(path, encoding="utf-8") as board:
        panels = json.load(board)["panels"]
    for panel in panels:
        if panel["type"] == "row":
            print(f'{"</div>" if is_open else ""}<h1>{html.escape(panel["title"])}</h1><div class="row">')
            is_open = True
        else:
            print(draw_panel(url, panel, begin, end))
    print("</div>")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
