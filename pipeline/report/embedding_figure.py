"""The picture of an embedding as PNG bytes: its first coordinates in pairs, with a title and a key.

Figures do not use pyplot's global state, so any process or thread can draw them.
"""

from matplotlib.figure import Figure

from ..core.arrays import Float64, Int32
from .color_key import add_key
from .embedding_panels import content_of, draw_content, panel_of, shown_paint
from .figure_style import DPI, FAINT, INK, message_figure, plain_text, to_png
from .point_colors import ColorSource


def draw_embedding(embedding: Float64, component: Int32, color: ColorSource | None, title: str) -> bytes:
    """PNG of the first (up to three) coordinates of an embedding.

    embedding: (n, m), rows of NaN for dropped points; component: (n,), -1 for dropped points. Each graph
    component has a separate embedding, so several components are placed side by side, shifted but not scaled, each
    labelled with its number and size. One coordinate is drawn against the colour value (or as a histogram without
    one), three or more as the panels (1, 2), (1, 3), (2, 3). Points outside the view (see `robust_range`) are
    counted above their panel.
    """
    content = content_of(embedding, component, color)
    groups = content.groups
    if not groups:
        return to_png(message_figure(title, "no point was embedded"))
    n_pairs = len(content.pairs)
    size = (4.0 * n_pairs + 1.0, 4.2) if n_pairs > 1 else (7.4, 5.6)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    figure.suptitle(plain_text(title, 90), x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    axes = list(figure.subplots(1, n_pairs, squeeze=False).flat)
    if notes := content.selection():
        figure.supxlabel("; ".join(notes), fontsize=8.5, color=FAINT)
    panels = [panel_of(ax, content, pair) for ax, pair in zip(axes, content.pairs, strict=True)]
    drawn = "1 row" if content.n_rows == 1 else f"{content.n_rows:,} rows"
    parts = f" in {len(groups)} components, side by side" if len(groups) > 1 else ""
    axes[0].set_title(drawn + parts, loc="left", fontsize=10, color=INK)
    paint = shown_paint(content, panels)
    add_key(figure, axes, paint, loc="outside right upper")
    draw_content(figure, axes, panels, content, paint)
    return to_png(figure)
