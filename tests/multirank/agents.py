"""`lockstep launch` on several nodes: one agent a node, all with the same run folder."""
import os
import pathlib
import subprocess
import time

from lockstep_run import (TINY, check, events, flags, members, metrics, program, state_of,
                          stopped_worker, tail, wait_until)

# A step takes tens of milliseconds: long enough to be caught at it.
KEYS = TINY | {"model.dim": 128, "model.n_heads": 4, "model.ffn_dim": 352, "training.seq_len": 128,
               "checkpoint.interval": 3, "launcher.nproc_per_node": 1,
               "launcher.last_call_seconds": 20}


class Agents:
    """Of nodes n0, n1, …: on the loopback, or, when `hosts` are given, on these (chaos/hosts.py).
    Owns the processes, with the test."""

    def __init__(self, test, name, count, nnodes, keys, hosts=None):
        self.test, self.folder, self.hosts = test, test.folder / name, hosts
        self.agents, self.logs = {}, {}
        config = test.folder / "config.toml"
        config.write_text("# every key comes from the command line\n")
        self.command = [program("lockstep"), "launch", str(config),
                        *flags({"data.path": test.tokens()} | KEYS | keys),
                        f"--job.dump_folder={self.folder}", "--nnodes", nnodes,
                        "--local-addr", "eth0" if hosts else "127.0.0.1"]
        for number in range(count):
            self.add(number)

    def add(self, number, own_keys=None, own_environment=None):
        node = f"n{number}"
        command = self.command + flags(own_keys or {})
        if self.hosts:
            command = self.hosts[number].inside(*command)
        self.logs[node] = self.test.folder / f"{self.folder.name}_{node}.log"
        self.agents[node] = self.test.start(command, self.logs[node], self.test.environment | {
            "LOCKSTEP_NODE_NAME": node, "TMPDIR": str(self.test.folder)} | (own_environment or {}))

    def log(self):
        return "".join(f"--- {node}\n{tail(log.read_text(errors='replace'), 40)}\n"
                       for node, log in self.logs.items())

    def await_(self, condition, what, timeout_s=60):
        """The first true value; meanwhile no agent may end."""
        def looked():
            for node, agent in self.agents.items():
                check(agent.poll() is None, f"agent {node} ended")
            return condition()
        try:
            return wait_until(looked, what, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.members()}\n{self.log()}") from None

    def members(self):
        return members(self.folder)

    def stopped(self, rank, generation=1):
        """A worker that stops itself (debug.stop_at), once it has. It cannot end before it is woken
        or killed; its agent does the latter after 5 s."""
        return self.await_(lambda: stopped_worker(self.folder, rank, generation),
                           f"rank {rank} of generation {generation} stops itself")

    def at(self, world_size, step):
        """workers.json once a generation of so many ranks has done `step`."""
        def there():
            lines = metrics(self.folder)
            if not lines or lines[-1]["world_size"] != world_size or lines[-1]["step"] < step:
                return None
            found = self.members()
            return found if found["generation"] == lines[-1]["generation"] else None
        return self.await_(there, f"step {step} with {world_size} ranks")

    def after(self, disturb, world_size, what, timeout_s=60):
        """Seconds from disturb() to the next step of a later generation of so many ranks; None:
        of any number."""
        start, generation = time.time(), self.members()["generation"]
        disturb()

        def resumed():
            return next((line for line in metrics(self.folder)
                         if line["t"] > start and line["generation"] > generation
                         and world_size in (None, line["world_size"])), None)
        line = self.await_(resumed, f"a step after {what}", timeout_s)
        self.await_(lambda: self.members()["generation"] >= line["generation"], "its workers.json")
        print(f"       {what}: next completed step after {line['t'] - start:.2f} s, of which the "
              f"step {line['step_time_s']:.2f} s", flush=True)
        return line["t"] - start

    def coordinator(self):
        return self.await_(lambda: next(
            (node["name"] for node in self.members()["nodes"] if node["coordinator"]
             and node["name"] in self.agents), None), "a coordinator")

    def another(self):
        """A node that has workers and does not coordinate."""
        return self.await_(lambda: next(
            (node["name"] for node in self.members()["nodes"] if not node["coordinator"]
             and node["first_rank"] >= 0 and node["name"] in self.agents), None), "another node")

    def workers_of(self, node):
        return [worker["pid"] for worker in self.members()["workers"] if worker["node"] == node]

    def kill_agent(self, node):
        """The kernel then kills its workers, which takes a moment."""
        agent = self.agents.pop(node)
        workers = children_of(agent.pid)
        agent.kill()
        agent.wait()
        wait_until(lambda: not any(map(state_of, workers)), f"the end of the workers of {node}")

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
        return events(self.folder, name)

    def sizes(self):
        """The world sizes, one after the other."""
        seen = []
        for line in metrics(self.folder):
            if not seen or seen[-1] != line["world_size"]:
                seen.append(line["world_size"])
        return seen


def children_of(pid):
    """Of any of its threads."""
    lists = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


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
