"""The answers of the example's page, and its buttons."""

import json

from barnabas.pipeline.example.page import Process, Refused, State, gets, posts
from barnabas.pipeline.monitor.progress import Monitor

STATE = State(
    phase="orders come",
    seconds=3.5,
    sent={"new": 2, "late": 1},
    brokers=[Process("broker-1", 11, True, 0), Process("broker-2", None, False, 1)],
    driver=Process("driver", 12, True, 0),
    sums=4,
    broken=1,
    first_row=2.5,
    last_sums=[{"minute": "2026-03-01T09:00:00.000Z", "cents": 5}],
    events=[(1.0, "driver runs")],
    verdict=[],
)


def progress():
    return Monitor("job", "sink", 0.0).progress(1.0)


def test_state_has_processes_sums_and_the_jobs_progress():
    data = json.loads(gets(lambda: STATE, progress)["/state"]().body)
    assert data["brokers"][1] == {"name": "broker-2", "pid": None, "ready": False, "kills": 1}
    assert data["driver"]["pid"] == 12
    assert data["last_sums"][0]["cents"] == 5
    assert data["progress"]["job"] == "job"


def test_page_of_the_example_replaces_that_of_a_job():
    answers = gets(lambda: STATE, progress)
    assert b"exactly once" in answers["/"]().body
    assert json.loads(answers["/progress"]().body)["state"] == "starting"
    assert b"barnabas_pipeline_state" in answers["/metrics"]().body


def test_button_kills_the_process_of_its_name():
    killed = []

    def kill(name):
        killed.append(name)
        return 17

    answers = posts(kill, ["broker-1", "driver"])
    answer = answers["/kill/driver"]()
    assert (answer.status, json.loads(answer.body)) == (200, {"killed": "driver", "pid": 17})
    assert killed == ["driver"]
    assert list(answers) == ["/kill/broker-1", "/kill/driver"]


def test_refused_kill_tells_the_reason():
    def kill(name):
        raise Refused(f"{name} is down already")

    answer = posts(kill, ["broker-1"])["/kill/broker-1"]()
    assert (answer.status, json.loads(answer.body)) == (409, {"error": "broker-1 is down already"})
