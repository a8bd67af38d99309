"""Colours of classes and of values, for pictures and for the explorer."""

from matplotlib.colors import to_hex, to_rgb

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7F7F7F", "#F0E442")
"""Okabe and Ito (2008), "Color Universal Design": distinguishable with all common forms of colour vision. Grey
replaces black, which is invisible on a dark page; yellow is last, because it is the faintest on white."""

COLOR_MAP = "viridis"


def class_colors(n: int, dark: bool = False) -> list[str]:
    """Colours #rrggbb of n classes. After eight, the hues repeat, darker, then lighter; such pictures also need names.

    On a dark page the hues repeat lighter, then darker.

    >>> class_colors(2), class_colors(9)[8]
    (['#0072b2', '#e69f00'], '#a16f00')
    """
    colors = []
    for i in range(n):
        turn = i // len(OKABE_ITO)
        base = to_rgb(OKABE_ITO[(i + (turn > 0)) % len(OKABE_ITO)])
        target = float((turn == 2) != dark)
        red, green, blue = (part if turn == 0 else part + (target - part) * 0.3 for part in base)
        colors.append(to_hex((red, green, blue)))
    return colors
