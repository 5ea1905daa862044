"""Results page of domains.py: what each way gains on its domain and loses on others, with intervals."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transencoder.errors import ABSENT
from transencoder.report.words import markdown_table

Line = Mapping[str, Any]
Gain = tuple[float, float, float]
"""Gain over the base model in points, and both ends of its 95 % bootstrap interval over the test's pairs."""

FORMS = ("bi", "half bi", "weighted bi", "cross")
"""Forms of model that a cell may give: a bi-encoder; the bi-encoder with weights halfway between the base model's and
its own; the bi-encoder with tokens weighted by their frequency in the domain's texts; a cross-encoder."""

_HOW = """\
Points over the base model, Spearman's correlation or ROC-AUC times 100, with 95 % intervals over each test's pairs
(paired bootstrap; of several seeds the means of gains and ends; of several domains taken for independent). Spread: the
standard deviation over seeds of the mean over domains. Worst: the lowest domain. Better, worse: domains whose interval
is above 0, below 0. Elsewhere: the mean over the other domains' tests. Minutes: the median of the processor time of
training one, on one core, of cells that no GPU trained; in bf16, or `(fp32)` on a processor without, where the same
takes about three times as long. Mean over fewer domains than there are: their number behind it. A way's settings are
in `benchmarks/domains.py`."""


def page(
    lines: Sequence[Line],
    development: Mapping[str, bool],
    metrics: Mapping[str, str],
    ways: Iterable[str],
    chosen: tuple[str, str],
) -> str:
    """Return the Markdown page.

    Args:
        lines: The lines of all measured cells.
        development: Whether settings are chosen on a domain, by domain.
        metrics: Metric of a domain's test, by domain.
        ways: Names of the ways, in the order of the tables.
        chosen: The way and the form that `transencoder train` gives by default.
    """
    parts = ["# Ten domains, without labels", _HOW]
    for base in dict.fromkeys(line["base"] for line in lines):
        own = [line for line in lines if line["base"] == base]
        groups = {
            (way, form): [line for line in own if line["way"] == way and form in line["gains"]]
            for way in ways
            for form in FORMS
        }
        found = {name: group for name, group in groups.items() if group}
        parts += [f"## From {base}", summary(found, development), gains_table(found, own, metrics)]
        alone = {name: group for name, group in found.items() if "teacher" not in name[0]}
        parts.append(regret(alone, chosen))
    commits = sorted({line["commit"]["commit"][:7] for line in lines})
    return "\n\n".join([*parts, f"Commits: {', '.join(commits)}."]) + "\n"


def summary(groups: Mapping[tuple[str, str], Sequence[Line]], development: Mapping[str, bool]) -> str:
    """Return a table with a row for each way and form: mean gains, the worst domain, the gain elsewhere, the cost."""
    header = ("way", "form", "development", "held out", "spread", "worst", "better, worse", "elsewhere", "minutes")
    rows = []
    for (way, form), group in groups.items():
        gains = {domain: mean_gain(line["gains"][form][domain] for line in each) for domain, each in _by_domain(group)}
        worst = min(gains, key=lambda domain: gains[domain][0])
        sides = sum(gain[1] > 0 for gain in gains.values()), sum(gain[2] < 0 for gain in gains.values())
        rows.append(
            (
                *(way, form),
                *(
                    _over(gains, [name for name, is_one in development.items() if is_one is kind])
                    for kind in (True, False)
                ),
                _spread(group, form),
                f"{worst} {gains[worst][0]:+.1f}",
                f"{sides[0]}, {sides[1]} of {len(gains)}",
                f"{statistics.mean(elsewhere(line, form) for line in group):+.2f}",
                _minutes(group),
            )
        )
    return "\n".join(markdown_table(header, rows))


def gains_table(
    groups: Mapping[tuple[str, str], Sequence[Line]], lines: Sequence[Line], metrics: Mapping[str, str]
) -> str:
    """Return a table with a row for each domain: the base model's metric, and the gain of each way."""
    header = ("domain", "metric", "base", *(f"{way} {form}" for way, form in groups))
    base = {line["domain"]: f"{line['scores']['base'][line['domain']]:.1f}" for line in lines}  # on the whole test
    by_domain = {name: dict(_by_domain(group)) for name, group in groups.items()}
    rows = []
    for domain, metric in metrics.items():
        cells = [
            _shown(mean_gain(line["gains"][form][domain] for line in each[domain])) if domain in each else ABSENT
            for (_, form), each in by_domain.items()
        ]
        rows.append((domain, metric, base.get(domain, ABSENT), *cells))
    return "\n".join(markdown_table(header, rows))


def regret(groups: Mapping[tuple[str, str], Sequence[Line]], chosen: tuple[str, str]) -> str:
    """Say how much less the default way gains than the best way measured, the base model included."""
    gains = {
        name: {domain: mean_gain(line["gains"][name[1]][domain] for line in each) for domain, each in _by_domain(group)}
        for name, group in groups.items()
    }
    own = gains.get(chosen, {})
    if not own:
        return ""
    lost_elsewhere = statistics.mean(elsewhere(line, chosen[1]) for line in groups[chosen])
    best = {domain: max(0.0, *(each[domain][0] for each in gains.values() if domain in each)) for domain in own}
    regrets = {domain: best[domain] - gain[0] for domain, gain in own.items()}
    least, worst = min(own, key=lambda each: own[each][0]), max(regrets, key=lambda each: regrets[each])
    means = statistics.mean(best.values()), statistics.mean(regrets.values())
    return (
        f"What `transencoder train` ends with by itself, over {len(own)} domains: "
        f"{_shown(mean_of_domains([*own.values()]))}, worst {least} {own[least][0]:+.1f}, elsewhere "
        f"{lost_elsewhere:+.2f}. The best of all rows without a teacher in each domain, found with the tests' labels: "
        f"{means[0]:+.1f}; so the regret is {means[1]:.1f}, at most {regrets[worst]:.1f} ({worst})."
    )


def mean_gain(gains: Iterable[Sequence[float]]) -> Gain:
    """Return the means over seeds of the gains and of their interval ends, because all seeds share one test."""
    gain, low, high = (statistics.mean(values) for values in zip(*gains, strict=True))
    return gain, low, high


def mean_of_domains(gains: Sequence[Gain]) -> Gain:
    """Return the mean gain over domains and its interval, with the domains' tests taken for independent draws."""
    mean, n = statistics.mean(gain for gain, _, _ in gains), len(gains)
    below, above = (sum((gain[0] - gain[end]) ** 2 for gain in gains) ** 0.5 / n for end in (1, 2))
    return mean, mean - below, mean + above


def elsewhere(line: Line, form: str) -> float:
    """Return the mean gain over the other domains' tests."""
    return statistics.mean(gain for test, (gain, _, _) in line["gains"][form].items() if test != line["domain"])


def _over(gains: Mapping[str, Gain], domains: Sequence[str]) -> str:
    found = [gains[domain] for domain in domains if domain in gains]
    if not found:
        return ABSENT
    return _shown(mean_of_domains(found)) + (f" ({len(found)})" if len(found) < len(domains) else "")


def _minutes(group: Sequence[Line]) -> str:
    """Return the median minutes of cells trained on a CPU, as were all cells of early lines, which name no device.

    Early cells were trained in bf16 too. Cells without bf16 count where there are no others, and are marked.
    """
    on_cpu = [line for line in group if line.get("device", "cpu") == "cpu"]
    in_bf16 = [line for line in on_cpu if line.get("bf16", True)]
    if not on_cpu:
        return ABSENT
    seconds = [line["processor_seconds"] for line in in_bf16 or on_cpu]
    return f"{statistics.median(seconds) / 60:.1f}{'' if in_bf16 else ' (fp32)'}"


def _spread(group: Sequence[Line], form: str) -> str:
    """Return the standard deviation of the mean gain over the seeds that have all of the group's domains."""
    domains = {line["domain"] for line in group}
    by_seed: dict[int, dict[str, float]] = {}
    for line in group:
        by_seed.setdefault(line["seed"], {})[line["domain"]] = line["gains"][form][line["domain"]][0]
    means = [statistics.mean(gains.values()) for gains in by_seed.values() if gains.keys() == domains]
    return f"{statistics.stdev(means):.2f} ({len(means)})" if len(means) > 1 else ABSENT


def _by_domain(group: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    names = dict.fromkeys(line["domain"] for line in group)
    return [(name, [line for line in group if line["domain"] == name]) for name in names]


def _shown(gain: Gain) -> str:
    return f"{gain[0]:+.1f} [{gain[1]:+.1f}, {gain[2]:+.1f}]"
