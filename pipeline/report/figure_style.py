"""Shared style of all pictures: colours, empty axes, labels, PNG output."""

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DPI = 150
INK, FAINT, RULE, MISSING, POINT = "#1f2933", "#6b7280", "#cbd2d9", "#c9ced6", "#2a6f97"


def chart_figure(title: str, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    return figure, ax


def message_figure(title: str, message: str) -> Figure:
    figure, ax = chart_figure(plain_text(title, 60), 6.4, 2.4)
    ax.set_axis_off()
    ax.text(0.5, 0.5, message, ha="center", va="center", fontsize=11, color=FAINT)
    return figure


def label_axes(ax: Axes, x_label: str, y_label: str) -> None:
    ax.set_xlabel(plain_text(x_label), fontsize=10, color=INK)
    ax.set_ylabel(plain_text(y_label), fontsize=10, color=INK)
    ax.tick_params(which="both", labelsize=9, labelcolor=INK, color=RULE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(RULE)


def plain_text(text: str, limit: int = 32) -> str:
    """Text on one line, cut at `limit`, with dollar signs escaped for matplotlib."""
    line = " ".join(text.split())
    return (line if len(line) <= limit else line[: limit - 1] + "…").replace("$", r"\$")


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi="figure", facecolor="white")
    return buffer.getvalue()
