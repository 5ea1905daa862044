"""A run's curves as data."""

from transencoder.report.plots import curve_plots


def test_curves_are_as_they_were_recorded(result):
    plots = {plot.name: plot for plot in curve_plots(result)}
    assert list(plots) == ["dev-by-cycle", "dev-cross", "dev-bi"]
    bi = plots["dev-by-cycle"].marks[1]
    assert bi.points == [(0.0, 81.8), (1.0, 84.0), (2.0, 85.0)]  # the start before the first cycle
    assert "bi-encoder: from 81.8 to 85, at best 85." in plots["dev-by-cycle"].about
    assert plots["dev-bi"].marks[1].points == [(200.0, 83.0), (400.0, 85.0), (600.0, 84.5)]


def test_what_chose_in_devs_stead_is_drawn(result):
    for n, cycle in enumerate(result["cycles"], 1):
        found = [(200, {"self_retrieval": 10.0 * n, "uniformity": 1.0}), (400, {"self_retrieval": 20.0 * n})]
        cycle["bi"] |= {"curve": [], "dev": None, "chosen_by": "self_retrieval", "criteria": found, "step": 400}
    result["criteria"] = {"start": {"self_retrieval": 15.0}}
    plots = {plot.name: plot for plot in curve_plots(result)}
    assert list(plots) == ["dev-by-cycle", "dev-cross", "criterion-bi"]
    assert plots["criterion-bi"].title == "Bi-encoder, self retrieval on held-out pairs by step"
    *lines, start = plots["criterion-bi"].marks
    assert start.value == 15.0
    assert [line.points for line in lines] == [[(200.0, 10.0), (400.0, 20.0)], [(200.0, 20.0), (400.0, 40.0)]]


def test_test_curves_are_drawn_when_they_were_recorded(result):
    scores = {"sts12": 70.0, "stsb": 80.0}
    result["analysis"] = {"bi": [(1, 200, scores), (1, 400, scores | {"sts12": 71.0}), (2, 200, scores)]}
    plots = [plot for plot in curve_plots(result) if plot.name.startswith("tests-")]
    assert [plot.name for plot in plots] == ["tests-bi"]
    assert plots[0].marks[0].points == [(200, 70.0), (400, 71.0), (600, 70.0)]


def test_undefined_points_are_left_out_of_the_plot(result):
    for cycle in result["cycles"]:
        for part in (cycle["bi"], cycle["cross"]):
            part["curve"] = [(200, None), (400, float("nan"))]
    assert [plot.name for plot in curve_plots(result)] == ["dev-by-cycle"]
