"""The figure renderer: every mark and axis, as a browser or an editor reads them."""

from __future__ import annotations

import math
import re
import time
from xml.etree import ElementTree

import numpy as np
import pytest

from dualml.report.draw import draw, palette, scales, standalone, text
from dualml.report.figure import (
    Arrow,
    Axis,
    Band,
    Bar,
    BoxMark,
    Figure,
    Heatmap,
    LegendEntry,
    LineMark,
    Mark,
    Panel,
    ReferenceLine,
    SeriesId,
    TextMark,
)

NAN = float("nan")
SVG = "{http://www.w3.org/2000/svg}"


PLAIN = Axis()


def figure(
    *marks: Mark, x: Axis = PLAIN, y: Axis = PLAIN, keys: tuple[LegendEntry, ...] = ()
) -> Figure:
    return Figure("name", "caption", "in words", [Panel(marks, x, y)], keys)


def parsed(shown: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(standalone(shown))


def letters(shown: Figure) -> list[str]:
    return ["".join(t.itertext()) for t in parsed(shown).iter(f"{SVG}text")]


def elements(shown: Figure, mark: str = "path") -> list[ElementTree.Element]:
    groups = [g for g in parsed(shown).iter(f"{SVG}g") if (g.get("class") or "").startswith("m ")]
    return [e for g in groups for e in g.iter(f"{SVG}{mark}")]


def points(shown: Figure) -> list[list[str]]:
    """Return ``x,y,texts`` of every mark with a tooltip."""
    groups = parsed(shown).iter(f"{SVG}g")
    return [g.attrib["data-points"].split("|") for g in groups if "data-points" in g.attrib]


#: Every mark, as it is used and at its limits.
MARKS: dict[str, tuple[Mark, ...]] = {
    "line": (LineMark([1, 2, 3], [1, 2, 3]),),
    "one point": (LineMark([1], [1], marker="circle"),),
    "nothing": (LineMark([], []),),
    "all gaps": (LineMark([1, 2], [NAN, NAN]),),
    "infinite": (LineMark([1, 2, 3], [1, math.inf, 2]),),
    "band": (LineMark([1, 2], [1, 2], low=[0, 1], high=[2, NAN]),),
    "bars": (LineMark([1, 2], [1, 2], low=[0, NAN], high=[2, 3], bars="y", joined=False),),
    "bars across": (LineMark([1, 2], [0, 1], low=[0, 1], high=[2, 3], bars="x", marker="diamond"),),
    "below": (Band([1, 2], None, [1, 2]), Band([1, 2], [1, 2], None)),
    "bar": (Bar(0, 2, text="27 %"), Bar(1, 0)),
    "box": (BoxMark(0, 0, 100, 10, text="3"), BoxMark(0, 0, 1e-9, 1, text="3", tone=1, frame=True)),
    "cells": (Heatmap([[0, 1], [NAN, 2]], 2, "samples"), Heatmap(np.zeros((2, 2)), 0, "none", "–")),
    "arrow": (Arrow(0, 0, 1, 1, text="a", dot=True, both=True), Arrow(0, 0, 0, 0)),
    "text": (TextMark(0, 0, "two\nlines", bold=True, small=True, align="center"),),
    "rule": (
        ReferenceLine(1),
        ReferenceLine(1, 2),
        ReferenceLine(1, axis="x", dashed=True),
        ReferenceLine(1, 2, axis="x", faint=True),
    ),
    "none": (),
}
AXES = {
    "linear": Axis("label"),
    "auto": Axis(scale="auto"),
    "log": Axis(scale="log"),
    "log2": Axis(scale="log2"),
    "symlog": Axis(scale="symlog", low=0),
    "hidden": Axis(hidden=True),
    "ends": Axis(low=0, high=3, integer_ticks=True),
    "names": Axis(names=("a", "b", "c"), beside=("1", "2", "3")),
    "ticks": Axis(ticks=[(1, "one"), (2, "two")]),
    "flipped": Axis(flip=True, grid=False),
}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("mark", MARKS)
def test_every_mark_on_every_axis(mark: str, axis: str) -> None:
    shown = figure(*MARKS[mark], x=AXES[axis], y=AXES[axis])
    places = [
        element.attrib[name]
        for element in parsed(shown).iter()
        for name in ("d", "x", "y", "width", "height", "cx", "cy", "dy", "transform", "viewBox")
        if name in element.attrib
    ]
    assert not [at for at in places if re.search(r"nan|inf|None|\de|--", at)]


def test_a_curve_passes_through_its_points() -> None:
    shown = figure(LineMark([0, 5, 10], [0, 1, 4]), x=Axis(low=0, high=10), y=Axis(low=0, high=4))
    (path,) = elements(shown)
    at = [[float(v) for v in p.split(",")] for p in re.findall(r"[\d.]+,[\d.]+", path.get("d", ""))]
    (x0, y0), (x1, y1), (x2, y2) = at
    assert (x0, y0, y2) == (0, 240, 0)
    assert x1 == pytest.approx(x2 / 2, abs=0.01)
    assert y1 == 180


def test_on_a_logarithmic_axis_ratios_are_distances() -> None:
    axis = scales.fit_scale(Axis(scale="log", low=1, high=1000), [])
    assert [round(axis(v), 6) for v in (1, 10, 100, 1000)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert math.isnan(axis(0))
    assert math.isnan(axis(-1))


def test_an_axis_of_names_keeps_ends_that_are_given() -> None:
    names = scales.fit_scale(Axis(names=("a", "b", "c"), low=0, high=2), [])
    assert (names(0), names(2)) == (0, 1)
    assert scales.fit_scale(Axis(names=("a", "b", "c")), [])(0) > 0, "room beside the first name"


def test_symlog_is_linear_below_one_and_logarithmic_above() -> None:
    axis = scales.fit_scale(Axis(scale="symlog", low=0, high=100), [])
    steps = [axis(v) for v in (0, 0.5, 1, 10, 100)]
    assert steps[1] == pytest.approx(steps[2] / 2)
    assert steps[4] - steps[3] == pytest.approx(steps[3] - steps[2])


@pytest.mark.parametrize(
    ("values", "kind"), [([1, 29], "linear"), ([1, 31], "log"), ([0, 1, 31], "log"), ([], "linear")]
)
def test_a_wide_range_is_logarithmic(values: list[float], kind: str) -> None:
    assert scales.fit_scale(Axis(scale="auto"), values).kind == kind


@pytest.mark.parametrize(
    ("kind", "low", "high", "labels"),
    [
        ("linear", 0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ("linear", 0, 10000, ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]),
        ("linear", -0.05, 0.05, ["−0.04", "−0.02", "0.00", "0.02", "0.04"]),
        ("linear", 0, 1e-8, ["0", "2 · 10⁻⁹", "4 · 10⁻⁹", "6 · 10⁻⁹", "8 · 10⁻⁹", "10⁻⁸"]),
        ("linear", 3, 3, ["3"]),
        ("log", 0.5, 2000, ["1", "10", "100", "1,000"]),
        ("log", 1e-9, 1e-5, ["10⁻⁹", "10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵"]),
        ("log", 0.09, 0.9, ["0.1", "0.2", "0.5"]),
        ("log", 1.1, 1.4, ["1.10", "1.15", "1.20", "1.25", "1.30", "1.35", "1.40"]),
        ("log2", 1, 16, ["1", "2", "4", "8", "16"]),
        ("symlog", 0, 500, ["0", "1", "10", "100"]),
    ],
)
def test_ticks_are_round_numbers(kind: str, low: float, high: float, labels: list[str]) -> None:
    assert [name for _, name in scales.ticks(kind, low, high, 6)] == labels


def test_whole_ticks() -> None:
    assert [v for v, _ in scales.ticks("linear", 0, 2, 6, whole=True)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["<b>&\"'", "中文 名字", "a|b;c,d", "]]>", "--x\nnext"])
def test_names_from_run_folders_are_text(name: str) -> None:
    shown = Figure(
        name,
        name,
        name,
        [
            Panel(
                [
                    LineMark([1, 2], [1, 2], SeriesId(name, name, name), low=[0, 0], high=[9, 9]),
                    Bar(0, 1, SeriesId(series=name), text=name),
                    TextMark(1, 1, name),
                    BoxMark(0, 0, 1, 1, hint=name),
                ],
                Axis(name),
                Axis(name, low=1),
                title=name,
            )
        ],
        [LegendEntry("arm", name, name), LegendEntry("series", name)],
    )
    root = parsed(shown)
    assert any("".join(t.itertext()) == name for t in root.iter(f"{SVG}text")) or "\n" in name
    assert not list(root.iter("b"))
    assert root.get("aria-label") == name.replace("\n", " ")


def test_the_pointer_shows_values_and_names() -> None:
    named = figure(
        LineMark([1, 2], [0, 1], marker="circle"),
        x=Axis(ticks=[(1, "64 KiB")]),
        y=Axis(names=("ring", "tree")),
    )
    ((first, second),) = points(named)
    assert first.split(",", 2)[2] == "64 KiB;ring"
    assert second.split(",", 2)[2] == "2;tree"
    ((only,),) = points(figure(LineMark([1, 2], [123456.7, NAN])))
    assert only.endswith(",1;123,457")
    ((hinted,),) = points(figure(LineMark([1], [1], hints=["so | so"])))
    assert hinted.endswith(",so / so")
    assert not points(figure(LineMark([1, 2], [1, 2], weight="faint")))


def test_a_gap_interrupts_a_curve() -> None:
    (path,) = elements(figure(LineMark([1, 2, 3, 4], [1, NAN, 2, 3])))
    assert path.get("d", "").count("M") == 2


def test_keys_decide_colour_stroke_and_marker() -> None:
    keys = (
        LegendEntry("arm", "a", color="wine"),
        LegendEntry("backend", "torch", stroke="wide"),
        LegendEntry("series", "s", marker="square", hollow=True),
    )
    shown = figure(LineMark([1], [1], SeriesId("a", "torch", "s")), keys=keys)
    groups = [g.attrib for g in parsed(shown).iter(f"{SVG}g") if "data-arm" in g.attrib]
    assert groups[0]["class"] == "m c-wine k-wide"
    assert (groups[0]["data-backend"], groups[0]["data-series"]) == ("torch", "s")
    assert any("paper" in (e.get("class") or "") for e in elements(shown))
    plain = figure(LineMark([1], [1], SeriesId("a", "torch", "s"), marker="none"), keys=keys)
    assert len(elements(plain)) == len(elements(shown)) - 1


def test_the_legend_lists_what_is_drawn_in_the_order_of_keys() -> None:
    keys = tuple(LegendEntry("series", s, s.upper(), color="blue") for s in ("b", "a", "unused"))
    hidden = (LegendEntry("series", "h", listed=False),)
    marks = [Bar(0, 1, SeriesId(series=s)) for s in ("a", "b", "h", "unknown")]
    shown = figure(*marks, keys=keys + hidden)
    listed = [g for g in parsed(shown).iter(f"{SVG}g") if g.get("class") == "key"]
    assert [g.get("data-name") for g in listed] == ["b", "a", "unknown"]
    assert letters(shown)[:3] == ["B", "A", "unknown"]


def test_unknown_series_get_colours_that_no_key_has() -> None:
    marks = [Bar(k, 1, SeriesId(series=f"s{k}")) for k in range(4)]
    svg = draw(figure(*marks, keys=(LegendEntry("series", "s0", color="blue"),)))
    colors = re.findall(r'class="m c-(\w+)" data-series="(\w+)"', svg)
    assert colors == [("blue", "s0"), ("vermilion", "s1"), ("green", "s2"), ("pink", "s3")]


def test_wide_lines_lie_beneath_narrow_ones() -> None:
    keys = (
        LegendEntry("backend", "t", stroke="wide"),
        LegendEntry("backend", "m", stroke="dashes"),
    )
    marks = [LineMark([1], [1], SeriesId(backend=b)) for b in ("m", "t")]
    noise = LineMark([1], [1], SeriesId(backend="m"), weight="faint")
    order = re.findall(
        r'class="m [^"]*" data-backend="(.)"', draw(figure(*marks, noise, keys=keys))
    )
    assert order == ["m", "t", "m"]


def test_shared_axes_are_labelled_once_and_have_one_range() -> None:
    panels = [
        Panel([LineMark([0, k], [0, k])], Axis("updates"), Axis("loss")) for k in (1, 2, 3, 100)
    ]
    shown = Figure("f", "", "", panels, columns=2, share_x="column", share_y="all")
    texts = letters(shown)
    assert texts.count("updates") == 2
    assert texts.count("loss") == 2
    assert texts.count("100") == 3  # of the right column's x, and y of both rows
    alone = letters(Figure("f", "", "", panels, columns=2))
    assert alone.count("100") == 2


def test_an_empty_place_leaves_the_labels_above_it() -> None:
    panel = Panel([LineMark([0, 1], [0, 1])], Axis("updates"), Axis("loss"))
    shown = Figure("f", "", "", [panel, panel, panel, None], columns=2, share_x="column")
    assert letters(shown).count("updates") == 2


def test_a_text_stands_in_a_box_where_it_fits() -> None:
    axis = Axis(low=0, high=100, hidden=True)
    shown = figure(
        BoxMark(0, 0, 50, 50, text="wide"), BoxMark(60, 0, 0.5, 50, text="thin"), x=axis, y=axis
    )
    assert letters(shown) == ["wide"]


def test_numbers_stand_in_the_cells_where_they_fit() -> None:
    few = figure(Heatmap([[1, 2], [0, 0]], 2, "samples", "nobody"), y=Axis(names="ab"))
    assert {"1", "2", "nobody", "samples"} <= set(letters(few))
    many = figure(Heatmap(np.ones((2, 200)), 2, "samples"), y=Axis(names="ab"))
    assert len(letters(many)) < 40


def test_drawings_have_one_unit_in_a_pixel() -> None:
    x, y = Axis(low=0, high=300, hidden=True), Axis(low=0, high=100, hidden=True, flip=True)
    panel = Panel([BoxMark(10, 20, 30, 40, frame=True)], x, y, height=100)
    root = parsed(Figure("f", "", "", [panel], width=300))
    box = next(e for e in root.iter(f"{SVG}rect") if "c-card" in (e.get("class") or ""))
    assert [box.get(k) for k in ("x", "y", "width", "height")] == ["10", "20", "30", "40"]
    assert root.get("viewBox") == "0 0 300 100"


def test_what_leaves_the_axes_is_cut() -> None:
    inside = figure(LineMark([0, 1], [0, 1]))
    outside = figure(LineMark([0, 1], [0, 9], marker="circle"), y=Axis(low=0, high=1))
    assert "clip-path" not in draw(inside)
    assert "clip-path" in draw(outside)


def test_texts_are_measured_by_their_letters() -> None:
    assert text.width("iii") < text.width("nnn") < text.width("WWW")
    assert text.width("中文") == 2 * palette.LETTER
    assert text.width("a\nlonger") == text.width("longer")


def test_long_names_are_cut_to_the_room_there_is() -> None:
    long = "a-very-long-name-of-an-arm " * 12
    panel = Panel(
        [Bar(0, 1, SeriesId(long))], Axis(long), Axis(long, names=(long,), beside=(long,)), long
    )
    shown = Figure("f", "", "", [panel, panel], [LegendEntry("arm", long)], columns=2)
    texts = letters(shown)
    assert sum(t.endswith("…") and t[:-1] in long for t in texts) == 9
    sizes = [p.get("data-size", "") for p in parsed(shown).iter() if p.get("class") == "panel"]
    assert all(float(size.split(",")[0]) > 150 for size in sizes)
    assert text.truncate("short", 100) == "short"
    assert text.width(text.truncate(long, 100)) <= 100


def test_the_same_figure_is_the_same_bytes_and_names_colours_that_exist() -> None:
    shown = figure(*(m for marks in MARKS.values() for m in marks))
    first = standalone(shown)
    assert first == standalone(shown)
    assert set(re.findall(r"\bc-(\w+)", draw(shown))) <= set(palette.COLORS)
    assert set(re.findall(r"\bk-([\w-]+)", draw(shown))) <= set(palette.STROKES)


def test_colours_are_told_apart_from_their_ground() -> None:
    """Colours have a contrast of at least 2 for large marks and 4.5 for text."""

    def light(color: str) -> float:
        shares = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    def contrast(a: str, b: str) -> float:
        high, low = sorted((light(a), light(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for scheme in (0, 1):
        paper = palette.COLORS["paper"][scheme]
        for name in palette.CYCLE:
            assert contrast(palette.COLORS[name][scheme], paper) >= 2, name
        for name in ("ink", "black", "muted"):
            assert contrast(palette.COLORS[name][scheme], paper) >= 4.5, name


def test_a_large_figure_is_drawn_in_a_fraction_of_a_second() -> None:
    x = np.arange(300.0)
    marks = [LineMark(x, np.cos(x / k), SeriesId(f"arm {k}", "torch")) for k in range(1, 31)]
    began = time.process_time()
    draw(figure(*marks))
    assert time.process_time() - began < 1.0
