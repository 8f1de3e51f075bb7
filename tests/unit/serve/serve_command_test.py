"""`lockstep serve` as a process: where it listens, who is answered, what its answers allow, how it
ends. serve_command_test.py LOCKSTEP"""
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

LOCKSTEP = sys.argv[1]
DEADLINE_S = 60


def check(condition, *values):
    if not condition:
        raise AssertionError(values)


def make_run(folder, steps, loss=4.0):
    folder.mkdir(parents=True)
    (folder / "run_args.json").write_text(json.dumps(
        {"config": {"training": {"steps": steps}}, "world_size": 1}))
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps({"step": step, "loss": loss / step, "tokens": 10,
                                   "step_time_s": 0.5, "t": 1.7e9 + step / 2, "generation": 0,
                                   "world_size": 1}) + "\n")


class Served:
    def __init__(self, *words, environment=None):
        self.process = subprocess.Popen([LOCKSTEP, "serve", *map(str, words)], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()
        found = re.search(r"http://([0-9.]+):(\d+)/(?:\?token=([0-9a-f]+))?$", self.said)
        check(found, self.said, "" if found else self.process.communicate(timeout=DEADLINE_S))
        self.host, self.port, self.token = found[1], int(found[2]), found[3]

    def ask(self, target, method="GET", headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=DEADLINE_S)
        connection.request(method, target, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def json(self, target):
        status, headers, body = self.ask(target)
        check(status == 200 and headers["Content-Type"] == "application/json", status, body)
        return json.loads(body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


def ends(served, number, warnings=0):
    served.process.send_signal(number)
    _, errors = served.process.communicate(timeout=DEADLINE_S)
    check(served.process.returncode == 0, served.process.returncode, errors)
    check(errors.count("\n") == errors.count("dashboard turned away") == warnings, errors)


def shows_runs(results):
    with Served(results, "--port", 0) as served:
        check(served.host == "127.0.0.1" and served.token is None, served.said)
        check("dashboard of 2 runs" in served.said, served.said)
        runs = served.json("/api/runs")
        check([run["run"] for run in runs["runs"]] == ["deep/b", "first"], runs)
        curve = served.json("/api/curve?run=deep%2Fb&run=first&field=loss&points=100")
        check([each["of"] for each in curve["curves"]] == [5000, 3], curve)
        check(len(curve["curves"][0]["x"]) <= 100, curve)
        status, headers, body = served.ask("/")
        check(status == 200 and headers["Content-Type"].startswith("text/html"), headers)
        policy = headers["Content-Security-Policy"]
        check("default-src 'none'" in policy and "unsafe" not in policy, policy)
        for name in re.findall(rb'(?:src|href)="([a-z.]+)"', body):
            status, headers, body = served.ask("/" + name.decode())
            check(status == 200 and len(body) > 100, name, status)
        check(served.ask("/../../../../etc/passwd")[0] == 404)
        check(served.ask("/api/run?run=../first")[0] == 404)
        check(served.ask("/", "POST")[0] == 405)
        check(served.ask("/", headers={"Host": "evil.example"})[0] == 403)
        # What is logged from now on is seen.
        with open(results / "first/metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step":4,"loss":0.5}\nnot a step\n{"step":5,"lo')
        check(served.json("/api/curve?run=first&field=loss")["curves"][0]["x"] == [1, 2, 3, 4])
        check(served.json("/api/run?run=first")["counts"]["damaged_lines"] == 1)
        ends(served, signal.SIGINT, warnings=1)


def asks_for_a_token(results):
    with Served(results, "--port", 0, "--token") as served:
        check(re.fullmatch("[0-9a-f]{64}", served.token), served.said)
        for target in ("/", "/chart.js", "/api/runs", "/api/runs?token=" + "0" * 64):
            status, _, body = served.ask(target)
            check(status == 401 and b"first" not in body, target, status)
        check(served.ask("/api/runs?token=" + served.token)[0] == 200)
        check(served.ask("/", headers={"Authorization": "Bearer " + served.token})[0] == 200)
        body = served.ask("/?token=" + served.token)[2].decode()
        for name in re.findall(r'(?:src|href)="([^"]+)"', body):
            check(served.ask("/" + name)[0] == 200, name)
        other = Served(results, "--port", 0, "--token")
        with other:
            check(other.token != served.token, "a token was used twice")
            ends(other, signal.SIGTERM)
    check(not (results / "control.secret").exists(), "it wrote a secret")


def takes_the_secret_of_a_run(results):
    (results / "first/control.secret").touch(mode=0o600)
    (results / "first/control.secret").write_text("5a" * 32 + "\n")
    told = []
    for words, environment in (((results / "first",), {}),
                               ((results,), {"LOCKSTEP_SECRET": "5a" * 32})):
        with Served(*words, "--port", 0, "--token", environment=environment) as served:
            told.append(served.token)
    check(told[0] == told[1], told)


def refuses(results):
    with Served(results, "--port", 0) as served:
        for words, said in (((results / "nowhere",), "; RESULTS must be the folder of a run"),
                            ((), "results is required"),
                            ((results, "--host", "nosuchinterface0"), "nosuchinterface0"),
                            ((results, "--port", "x"), "--port"),
                            ((results, "--port", served.port), "in use")):
            told = subprocess.run([LOCKSTEP, "serve", *map(str, words)], capture_output=True,
                                  text=True, timeout=DEADLINE_S, check=False)
            check(told.returncode == 64 and said in told.stderr, words, told)


with tempfile.TemporaryDirectory() as scratch:
    results = pathlib.Path(scratch) / "results"
    make_run(results / "first", 3)
    make_run(results / "deep/b", 5000)
    before = sorted(results.rglob("*"))
    shows_runs(results)
    asks_for_a_token(results)
    check(sorted(results.rglob("*")) == before, "it wrote into the results")
    takes_the_secret_of_a_run(results)
    refuses(results)
print("serve: all as it should be")
