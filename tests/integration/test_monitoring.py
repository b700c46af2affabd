"""The monitoring of docker/: Prometheus scrapes a real run, alerts fire as they should, Grafana's panels are whole."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ps_web.prometheus import COUNTERS, GAUGES, STALENESS, exposition
from tests.integration.processes import Programs, wait_for

DOCKER = Path(__file__).parents[2] / "docker"
PROMETHEUS, ALERTS = DOCKER / "prometheus" / "prometheus.yaml", DOCKER / "prometheus" / "alerts.yaml"
DASHBOARD = json.loads((DOCKER / "grafana" / "ps-rl.json").read_text())
TOKEN = "a-secret-of-a-test"
UP = 'up{job="ps-rl"}'
DAY = 24 * 60

PATHS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
PROMTOOL, SERVER = shutil.which("promtool", path=PATHS), shutil.which("prometheus", path=PATHS)
with_prometheus = pytest.mark.skipif(
    not (PROMTOOL and SERVER), reason="needs prometheus and promtool: apt-get install prometheus"
)


def promtool(*arguments: str, standard_input: bytes = b"") -> None:
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, *arguments], input=standard_input, capture_output=True, timeout=60)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


METRICS = [*GAUGES, *(f"{name}_total" for name in COUNTERS), "ps_rl_refused_total", f"{STALENESS}_bucket"]


# -- the files --------------------------------------------------------------------------------------------------------


def expressions() -> dict[str, str]:
    """The expressions of alerts and panels, by where they are."""
    alerts = re.findall(r"- alert: (\w+)\n(?: +#.*\n)* +expr: (.+)\n", ALERTS.read_text())
    assert len(alerts) == ALERTS.read_text().count("alert:")
    panels = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return dict(alerts) | {f"{title} {number}": expr for number, (title, expr) in enumerate(panels)}


@pytest.mark.parametrize("expr", [pytest.param(expr, id=where) for where, expr in expressions().items()])
def test_every_metric_of_alerts_and_panels_is_one_of_the_page(expr: str) -> None:
    used = set(re.findall(r"\bps_rl_\w+", expr))
    assert used <= set(METRICS)
    assert used or expr == f"{UP} == 0"


@pytest.mark.parametrize(
    ("variables", "run"),
    [
        ({}, "pong"),
        ({"PRESET": "cartpole", "RUN": ""}, "cartpole"),
        ({"PRESET": "cartpole", "RUN": "second"}, "second"),
    ],
)
def test_the_page_of_a_container_keeps_its_token(tmp_path: Path, variables: dict[str, str], run: str) -> None:
    token = tmp_path / "token"
    script = tmp_path / "role.sh"
    text = (DOCKER / "role.sh").read_text()
    script.write_text(text.replace("/token/token", str(token)).replace("/runs/", f"{tmp_path}/"))
    (tmp_path / run).mkdir()
    program = tmp_path / "ps-web"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{Path(shutil.which('python3') or '').parent}:/usr/bin:/bin"
    (tmp_path / "python").symlink_to(shutil.which("python3") or "")
    for _ in range(2):
        said = subprocess.check_output(["sh", str(script), "page", "--x"], env={"PATH": path} | variables, text=True)
        assert len(token.read_text()) > 20
        flags = "--server server:5555 --host 0.0.0.0 --port 8265 --token-file"
        assert said == f"{tmp_path}/{run} {flags} {token} --x\n"


# -- with Prometheus --------------------------------------------------------------------------------------------------


@with_prometheus
def test_promtool_finds_nothing_wrong_with_configuration_rules_and_metrics() -> None:
    promtool("check", "config", "--syntax-only", str(PROMETHEUS))
    promtool("check", "rules", str(ALERTS))
    promtool("check", "metrics", standard_input=exposition([("gone", None)]))


def labels(metric: str, **more: str) -> str:
    pairs = {"run": "r", "environment": "e", "preset": "p"} | more
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in pairs.items()) + "}"


GONE = labels("ps_rl_up", environment="", preset="")
LIVE, WORKERS, PAUSED = labels("ps_rl_up"), labels("ps_rl_workers"), labels("ps_rl_paused")
STEPS, UPDATES = labels("ps_rl_environment_steps"), labels("ps_rl_updates_per_second")
DRAINING, STANDBY = labels("ps_rl_draining"), labels("ps_rl_standby")
REFUSED = labels("ps_rl_refused_total", code="superseded")
FAILED, LAG = labels("ps_rl_checkpoint_failures_total"), labels("ps_rl_standby_lag_seconds")

# Alert, series of a point a minute, the minute, and whether the alert fires then.
CASES: list[tuple[str, dict[str, str], int, bool]] = [
    ("PsRlNoMetrics", {UP: "1x5 0x20"}, 10, True),
    ("PsRlNoMetrics", {UP: "1x30"}, 10, False),
    ("PsRlServerDown", {LIVE: "1x5 stale", GONE: "_x6 0x20"}, 10, True),
    ("PsRlServerDown", {LIVE: "1x5 stale _x1 1x20", GONE: "_x6 0x1 stale"}, 12, False),
    ("PsRlServerDown", {GONE: "0x30"}, 10, False),  # a run that was over before
    ("PsRlServerDown", {LIVE: "1x5 stale", GONE: f"_x6 0x{2 * DAY}"}, DAY + 60, False),
    ("PsRlNoWorker", {WORKERS: "2x3 0x20"}, 12, True),
    ("PsRlNoWorker", {WORKERS: "2x3 0x2 1x20"}, 12, False),
    ("PsRlNoWorker", {WORKERS: "2x3 0x20", DRAINING: "0x3 1x20"}, 12, False),
    ("PsRlNoWorker", {WORKERS: "2x3 0x20", DRAINING: "0x23"}, 12, True),
    ("PsRlNoProgress", {STEPS: "1000+10x9 900+10x30", WORKERS: "2x40"}, 12, False),  # resumed from a checkpoint
    ("PsRlNoProgress", {STEPS: "0+10x5 60x30", WORKERS: "2x40"}, 20, True),
    ("PsRlNoProgress", {STEPS: "0+10x40", WORKERS: "2x40"}, 20, False),
    ("PsRlNoProgress", {STEPS: "0+10x5 60x30", WORKERS: "0x40"}, 20, False),
    ("PsRlNoProgress", {STEPS: "0+10x5 60x30", WORKERS: "2x40", PAUSED: "0x5 1x35"}, 20, False),
    ("PsRlNoProgress", {STEPS: "0+10x5 60x30", WORKERS: "2x40", PAUSED: "0x40"}, 20, True),
    ("PsRlCheckpointsFail", {FAILED: "0x5 1x20"}, 8, True),
    ("PsRlCheckpointsFail", {FAILED: "3x40"}, 30, False),
    ("PsRlStandbyGone", {STANDBY: "0x40"}, 30, False),  # a run that never had one
    ("PsRlStandbyGone", {STANDBY: "1x9 0x40"}, 20, True),
    ("PsRlStandbyGone", {STANDBY: "1x9 0x3 1x40"}, 20, False),
    ("PsRlStandbyGone", {STANDBY: f"1x9 0x{3 * DAY}"}, 2 * DAY, True),
    ("PsRlStandbyGone", {STANDBY: "1x9 stale", labels("ps_rl_standby", preset="q"): "_x10 0x40"}, 20, True),
    ("PsRlStandbyLags", {LAG: "0x5 20x20"}, 10, True),
    ("PsRlStandbyLags", {LAG: "0x5 20x1 0x20"}, 10, False),
    ("PsRlRefusals", {REFUSED: "0+10x40", UPDATES: "1.6x40"}, 25, True),
    ("PsRlRefusals", {REFUSED: "0+1x40", UPDATES: "1.6x40"}, 25, False),
    ("PsRlRefusals", {REFUSED: "0+10x9 0+10x30", UPDATES: "1.6x40"}, 17, True),  # the server was started again
    ("PsRlRefusals", {REFUSED: "7x40", UPDATES: "0x40"}, 25, False),
]


@with_prometheus
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    assert {alert for alert, *_ in CASES} == set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    tests = []
    for alert, series, minute, fires in CASES:
        count = f"count(ALERTS{{alertname='{alert}', alertstate='firing'}}) or vector(0)"
        tests.append({
            "name": f"{alert} {series}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {"expr": count, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": int(fires)}]}
            ],
        })  # fmt: skip
    file = tmp_path / "cases.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


@contextmanager
def prometheus_of(page: str, folder: Path) -> Iterator[str]:
    """Prometheus with the files of docker/, which scrapes `page` each second; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "token").write_text(TOKEN)
    shutil.copy(ALERTS, folder)
    config = PROMETHEUS.read_text().replace("15s", "1s")
    config = config.replace("/token/token", str(folder / "token")).replace("web:8265", page)
    (folder / "prometheus.yaml").write_text(config)
    flags = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("wb") as log:
        command = [SERVER or "", *flags, f"--web.listen-address={address}"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield address
    finally:
        process.kill()
        process.wait()


def asked(address: str, path: str, **query: str) -> Any:
    """The data of a reply of Prometheus; None while it does not listen."""
    try:
        with urllib.request.urlopen(
            f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10
        ) as it:
            return json.load(it)["data"]
    except urllib.error.URLError:
        return None


def value_of(address: str, expr: str) -> float | None:
    """The value of an expression that has one; None while it has none."""
    data = asked(address, "query", query=expr)
    return float(data["result"][0]["value"][1]) if data and data["result"] else None


@with_prometheus
def test_a_real_prometheus_scrapes_a_real_run_and_sees_its_server_go(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "the-run"
    server, endpoint = programs.start_server("--preset", "cartpole", "--max-steps", "100000000", run_dir=run)
    programs.start("rl-worker", "--server", endpoint)
    wait_for((run / "metrics.jsonl").exists, program=server)
    address_file = tmp_path / "page"
    (tmp_path / "token").write_text(TOKEN)
    files = ["--token-file", str(tmp_path / "token"), "--address-file", str(address_file)]
    page = programs.start("ps-web", str(run), "--host", "0.0.0.0", "--port", "0", *files)
    wait_for(address_file.exists, program=page)
    port = urllib.parse.urlsplit(address_file.read_text()).port
    with prometheus_of(f"127.0.0.1:{port}", tmp_path) as address:
        wait_for(lambda: value_of(address, UP) == 1.0, program=page)
        steps = wait_for(lambda: value_of(address, 'ps_rl_environment_steps{run="the-run"}'))
        wait_for(lambda: (value_of(address, 'ps_rl_environment_steps{run="the-run"}') or 0) > steps)
        assert value_of(address, "ps_rl_workers") == 1.0
        settled = f"sum({STALENESS}_bucket{{le='+Inf'}}) > 0"
        wait_for(lambda: value_of(address, settled))
        assert value_of(address, "ps_rl_paused") == 0.0
        promtool("check", "metrics", standard_input=scraped(port))
        server.signal(signal.SIGTERM)
        server.wait()
        wait_for(lambda: value_of(address, "max by (run) (ps_rl_up)") == 0.0)
        down = "ALERTS{alertname='PsRlServerDown', run='the-run'}"
        wait_for(lambda: value_of(address, down) == 1.0)  # pending, for a minute
        wait_for(lambda: all_evaluated(address))
        for where, expr in expressions().items():
            data = asked(address, "query", query=expr.replace("$run", ".*").replace("$__rate_interval", "1m"))
            assert data is not None, f"{where}: Prometheus refuses {expr}"


def scraped(port: int | None) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return bytes(response.read())


def all_evaluated(address: str) -> bool:
    """Whether every rule has been evaluated, and none with an error."""
    rules = [rule for group in asked(address, "rules")["groups"] for rule in group["rules"]]
    assert [rule["lastError"] for rule in rules if rule["health"] == "err"] == []
    return len(rules) == ALERTS.read_text().count("alert:") and all(rule["health"] == "ok" for rule in rules)
