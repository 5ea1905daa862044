"""The plots of a report, each as data, drawn as SVG for the page and as PNG beside it."""

from transencoder.records import PLOTS
from transencoder.report.plots.bars import gain_plot, length_plot, mined_plot
from transencoder.report.plots.curves import curve_plots
from transencoder.report.plots.labels import label_plots
from transencoder.report.plots.plot import SEVERAL, Plot
from transencoder.report.plots.svg import shape, strip, svg_of, swatch
from transencoder.report.plots.together import plots_together

__all__ = [
    "PLOTS",
    "SEVERAL",
    "Plot",
    "curve_plots",
    "gain_plot",
    "label_plots",
    "length_plot",
    "mined_plot",
    "plots_together",
    "shape",
    "strip",
    "svg_of",
    "swatch",
]
