"""The tables of tasks and suites, and the names that users type."""

import pytest

from transencoder.errors import InputError
from transencoder.metrics import METRICS, RANKING_METRICS
from transencoder.tasks import SUITE_DEV, SUITES, TASKS, dev_task, expand


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_is_complete(task):
    assert task.name == task.name.lower() and TASKS[task.name] is task
    assert task.unlabelled or task.layout == "candidates" or task.metric == "accuracy"
    assert "test" in task.splits or not task.splits
    assert task.score_range[0] < task.score_range[1]
    assert task.metric in (RANKING_METRICS if task.layout == "candidates" else (*METRICS, "accuracy"))
    assert task.metric != "accuracy" or set(task.splits) == {"train", "dev", "test"}
    assert "dev" in dev_task(task).splits or not task.splits
    assert len(set(task.columns)) == 3


def test_every_suite_is_of_known_tasks():
    assert set(SUITE_DEV) <= set(SUITES)
    for names in SUITES.values():
        assert set(names) <= set(TASKS)


def test_a_suite_expands_in_order_and_each_task_once():
    assert [task.name for task in expand("sts")] == list(SUITES["sts"])
    assert [task.name for task in expand(["stsb", "sts"])][:2] == ["stsb", "sts12"]
    assert len(expand(["stsb", "sts"])) == 7


def test_the_suite_and_the_years_take_stsb_dev_but_sick_alone_its_own():
    assert dev_task("sts").name == dev_task("sts12").name == dev_task("sts16").name == dev_task("stsb").name == "stsb"
    assert dev_task("sickr").name == "sickr"
    assert dev_task("reranking").name == dev_task("askubuntu").name == "askubuntu"
    assert dev_task("scidocs").name == "scidocs"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("stsbb", "did you mean 'stsb'"), ("STS12", "did you mean 'sts12'"), ("qwertz", "tasks: sts12")],
)
def test_an_unknown_name_gets_the_nearest_valid_one(typed, hint):
    with pytest.raises(InputError, match=f"unknown task '{typed}'.*{hint}"):
        expand(typed)
    with pytest.raises(InputError, match=hint):
        dev_task(typed)
