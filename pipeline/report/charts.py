"""The small chart of a report: the eigenvalue spectrum."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ..core.arrays import Float64
from .figure_style import FAINT, INK, OKABE_ITO, Pair, chart_figure, label_axes, message_figure, to_pair

MAX_SPECTRUM_COMPONENTS = 10


def draw_spectrum(eigenvalues: Float64, residuals: Float64 | None, rounding_floor: float | None, quantity: str) -> Pair:
    """PNGs of the eigenvalues on a log axis, one line per graph component.

    eigenvalues, residuals: (c, m); residuals are relative, ||M v - lambda v|| / lambda, drawn as error bars.
    rounding_floor: size of the rounding errors in an eigenvalue, in its unit; values near it are not significant.
    quantity: label of the values.
    """
    if not np.any(np.isfinite(eigenvalues) & (eigenvalues > 0.0)):
        return to_pair(message_figure("Eigenvalues", "no positive eigenvalue was found"))
    figure, ax = chart_figure("Eigenvalues", 4.2, 3.3)
    ax.set_yscale("log")
    ax.set_prop_cycle(color=OKABE_ITO[:7])
    for label, values in enumerate(eigenvalues[:MAX_SPECTRUM_COMPONENTS]):
        good = np.flatnonzero(np.isfinite(values) & (values > 0.0))
        ax.plot(good + 1, values[good], "o-", markersize=5, linewidth=1.2, label=f"component {label}")
        if residuals is not None:
            wide = good[residuals[label][good] > 0.05]  # smaller bars are hidden by the marker
            error = np.minimum(residuals[label][wide], 0.99) * values[wide]
            ax.errorbar(wide + 1, values[wide], yerr=error, fmt="none", capsize=3.0, ecolor=INK)
    if rounding_floor is not None and rounding_floor > 0.0:
        ax.axhline(rounding_floor, color=FAINT, linestyle="--", linewidth=1.0, label="rounding errors")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlim(0.6, eigenvalues.shape[1] + 0.4)
    _set_log_ticks(ax)
    label_axes(ax, "coordinate", quantity)
    n_lines = len(ax.get_legend_handles_labels()[1])
    if n_lines > 4:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, labelcolor=INK)
    elif n_lines > 1:
        ax.legend(loc="best", framealpha=0.8, edgecolor="none", fontsize=8.5, labelcolor=INK)
    if len(eigenvalues) > MAX_SPECTRUM_COMPONENTS:
        note = f"{MAX_SPECTRUM_COMPONENTS} of {len(eigenvalues)} components"
        ax.set_title(note, loc="right", fontsize=8.5, color=FAINT)
    return to_pair(figure)


def _set_log_ticks(ax: Axes) -> None:
    """Powers of ten, and in a narrow range their multiples, as plain text.

    Matplotlib's own labels are formulas, and it has eight small ticks in each decade: with them, the picture takes
    twice as long as all others of the report.
    """
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e2 * low else (1.0,)))
    ax.yaxis.set_major_formatter("{x:.3g}")
    ax.yaxis.set_minor_locator(NullLocator())
