"""Nodes that are network namespaces of this machine, each with a host name, an address and a
/dev/shm of its own, on one bridge:

  node n0 (eth0, 10.88.0.1) ---- v0 +
  node n1 (eth0, 10.88.0.2) ---- v1 + br0
  …

enter() at the start of a script moves it into namespaces of its own, where nothing outside is
touched and every process ends with it; where that is impossible the script ends with 77.
Disks and process ids are everybody's.
"""
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "slurm"))
import lab  # noqa: E402  (its namespaces; nothing of Slurm)

PROGRAMS = ("unshare", "nsenter", "ip", "nft")


def enter():
    lab.enter(PROGRAMS)


class Host:
    def __init__(self, number):
        self.name, self.address = f"n{number}", f"10.88.0.{number + 1}"
        self.link = f"v{number}"
        self.holder = subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", "sleep",
                                        "infinity"])
        own = pathlib.Path("/proc/self/ns/net").readlink()
        theirs = pathlib.Path(f"/proc/{self.holder.pid}/ns/net")
        lab.wait_until(lambda: theirs.readlink() != own, "a namespace", 10, 0.01)
        lab.must("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns",
                 self.holder.pid)
        lab.must("ip", "link", "set", self.link, "master", "br0", "up")
        self.must("hostname", self.name)
        self.must("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        self.must("ip", "link", "set", "lo", "up")
        self.must("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.must("ip", "link", "set", "eth0", "up")

    def inside(self, *command):
        """The command that runs `command` on this host."""
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--uts", "--ipc", "--mount", "--",
                *map(str, command)]

    def must(self, *command):
        return lab.must(*self.inside(*command))

    def cut(self):
        """Nothing comes in or goes out, and nobody is told."""
        lab.must("ip", "link", "set", self.link, "down")

    def mend(self):
        lab.must("ip", "link", "set", self.link, "up")

    def lose_every(self, nth):
        """Of the packets that come in, from now on; 0: none."""
        lab.run(*self.inside("nft", "delete", "table", "ip", "loss"))
        if nth == 0:
            return
        self.must("nft", "add", "table", "ip", "loss")
        self.must("nft", "add", "chain", "ip", "loss", "input",
                  "{ type filter hook input priority 0; }")
        self.must("nft", "add", "rule", "ip", "loss", "input", "numgen", "inc", "mod", nth, "0",
                  "counter", "drop")

    def lost_packets(self):
        words = self.must("nft", "list", "table", "ip", "loss").split()
        return int(words[words.index("packets") + 1])

    def shared_memory(self):
        """What lies in its /dev/shm."""
        return self.must("ls", "-A", "/dev/shm").split()


def hosts(count):
    """So many, connected. Requires: enter()."""
    lab.must("ip", "link", "set", "lo", "up")
    lab.must("ip", "link", "add", "br0", "type", "bridge")
    lab.must("ip", "link", "set", "br0", "up")
    return [Host(number) for number in range(count)]
