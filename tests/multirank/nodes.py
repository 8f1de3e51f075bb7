"""`lockstep launch` on several nodes, here three agents on the loopback: a worker, an agent and the
coordinator are killed, in turn; the others go on, and the losses are those of a run left alone."""
import json
import os
import signal
import subprocess
import time

from lockstep_run import (EXIT_RESUME, TINY, Test, check, check_same, flags, metrics, program, tail,
                          wait_until, whole_curve)

STEPS = 40
KEYS = TINY | {"model.dim": 128, "model.n_heads": 4, "model.ffn_dim": 352, "training.seq_len": 128,
               "training.steps": STEPS, "checkpoint.interval": 3}


class Nodes:
    """One agent a node, all with the same run folder."""

    def __init__(self, test, name, count, nnodes, keys=None):
        self.test, self.folder = test, test.folder / name
        self.agents, self.logs = {}, {}
        config = test.folder / "config.toml"
        config.write_text("# every key comes from the command line\n")
        self.command = [program("lockstep"), "launch", str(config),
                        *flags({"data.path": test.tokens()} | KEYS | (keys or {})),
                        f"--job.dump_folder={self.folder}", "--nnodes", nnodes,
                        "--nproc-per-node", "1", "--local-addr", "127.0.0.1",
                        "--rdzv-endpoint", f"file:{test.folder / (name + '_meet')}",
                        "--launcher.last_call_seconds", "20"]
        for number in range(count):
            self.add(f"n{number}")

    def add(self, node):
        self.logs[node] = self.test.folder / f"{self.folder.name}_{node}.log"
        self.agents[node] = self.test.start(self.command, self.logs[node], self.test.environment |
                                            {"LOCKSTEP_NODE_NAME": node})

    def log(self):
        return "".join(f"--- {node}\n{tail(log.read_text(errors='replace'), 40)}\n"
                       for node, log in self.logs.items())

    def members(self):
        try:
            return json.loads((self.folder / "workers.json").read_text())
        except FileNotFoundError:
            return {"workers": [], "nodes": [], "generation": -1, "world_size": 0}

    def at(self, world_size, step):
        """workers.json once a generation of so many ranks has done `step`."""
        def there():
            for node, agent in self.agents.items():
                check(agent.poll() is None, f"agent {node} ended\n{self.log()}")
            lines = metrics(self.folder)
            if not lines or lines[-1]["world_size"] != world_size or lines[-1]["step"] < step:
                return None
            found = self.members()
            return found if len(found["workers"]) == world_size else None
        try:
            return wait_until(there, "", 60)
        except AssertionError as error:
            raise AssertionError(f"no step {step} with {world_size} ranks: {error}\n"
                                 f"{self.log()}") from None

    def coordinator(self):
        return next(node["name"] for node in self.members()["nodes"] if node["coordinator"])

    def kill_agent(self, node):
        agent = self.agents.pop(node)
        agent.kill()
        agent.wait()

    def expect(self, status, timeout_s=60):
        end = time.monotonic() + timeout_s
        for node, agent in self.agents.items():
            try:
                agent.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                check(False, f"agent {node} is still there: {self.members()}\n{self.log()}")
            check(agent.returncode == status,
                  f"agent {node}: exit {agent.returncode}, not {status}\n{self.log()}")
        left = processes_with(str(self.folder))
        check(not left, f"left behind: {left}")

    def events(self, name=None):
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if name in (None, event["event"])]


def processes_with(word):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if word.encode() in file.read():
                    found.append(int(pid))
        except OSError:
            pass  # it has just ended
    return found


def sizes(folder):
    seen = []
    for line in metrics(folder):
        if not seen or seen[-1] != line["world_size"]:
            seen.append(line["world_size"])
    return seen


def after_kill(nodes, world_size, what):
    """Seconds from now to the next step of a later generation."""
    start, generation = time.time(), nodes.members()["generation"]

    def done():
        return [line for line in metrics(nodes.folder)
                if line["t"] > start and line["generation"] > generation
                and line["world_size"] == world_size]
    line = wait_until(done, f"a step after {what}\n{nodes.log()}", 60)[0]
    print(f"       {what}: next completed step after {line['t'] - start:.2f} s", flush=True)


def worker_then_coordinator(test, reference):
    nodes = Nodes(test, "worker_coordinator", 3, "1:3")
    victim = nodes.at(3, 6)["workers"][1]
    os.kill(victim["pid"], signal.SIGKILL)
    after_kill(nodes, 3, f"SIGKILL of the worker of {victim['node']}")
    nodes.at(3, 14)
    lost = nodes.coordinator()
    nodes.kill_agent(lost)
    after_kill(nodes, 2, f"SIGKILL of the coordinator {lost}")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS), "worker and coordinator killed")
    check(sizes(nodes.folder) == [3, 2], sizes(nodes.folder))
    recovered = nodes.events("recovered")
    check(len(recovered) == 2, nodes.events())
    for each in recovered:
        print(f"       {each['reason']}")
        check(all(word in each["reason"] for word in ("detect", "agree", "respawn", "restore")),
              each)


def agent_then_coordinator(test, reference):
    nodes = Nodes(test, "agent_coordinator", 3, "1:3")
    nodes.at(3, 6)
    coordinator = nodes.coordinator()
    victim = next(node for node in nodes.agents if node != coordinator)
    nodes.kill_agent(victim)
    after_kill(nodes, 2, f"SIGKILL of the agent {victim}")
    nodes.at(2, 16)
    lost = nodes.coordinator()
    nodes.kill_agent(lost)
    after_kill(nodes, 1, f"SIGKILL of the coordinator {lost}, one of two")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS), "agent and coordinator killed")
    check(sizes(nodes.folder) == [3, 2, 1], sizes(nodes.folder))


def stopped_at_any_node(test, reference):
    nodes = Nodes(test, "stopped", 2, "2")
    nodes.at(2, 6)
    nodes.agents["n1"].send_signal(signal.SIGTERM)
    nodes.expect(EXIT_RESUME)
    Nodes(test, "stopped", 1, "1").expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS), "stopped and started again")


with Test("nodes") as test:
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", 3, KEYS), STEPS)
    for case in (worker_then_coordinator, agent_then_coordinator, stopped_at_any_node):
        with test.case(case.__name__.replace("_", " ")):
            case(test, reference)
