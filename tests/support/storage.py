"""A file system that goes away: files of a folder, served through /dev/fuse by a process that stops
itself, as a file server does that is down. Calls to it hang then, and go on when it is woken.

  python3 storage.py SERVED MOUNT CONTROL

Where the file CONTROL holds {"op": …, "name": …}, the process stops itself (SIGSTOP) once it has
answered such an operation on a path that contains `name`: the next call is the first that hangs.
That one is not begun, so that a signal can end its caller, as on NFS. While CONTROL holds
{"held": NAME} the process goes on, but answers no write to a file of this name: for one rank alone
the storage hangs. Each such write is printed. Needs the right to mount.
The structures are those of linux/fuse.h, protocol 7.31. Standard library only.
"""
import ctypes
import errno
import json
import os
import pathlib
import select
import signal
import stat
import struct
import sys

IN = struct.Struct("<IIQQIIII")
OUT = struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<4Q2I")
IO = struct.Struct("<QQIIQII")
SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
NAMES = {1: "lookup", 2: "forget", 3: "getattr", 4: "setattr", 9: "mkdir", 10: "unlink",
         11: "rmdir", 12: "rename", 13: "link", 14: "open", 15: "read", 16: "write", 17: "statfs",
         18: "release", 20: "fsync", 26: "init", 27: "opendir", 28: "readdir",
         29: "releasedir", 30: "fsyncdir", 35: "create", 36: "interrupt", 42: "batch_forget",
         45: "rename2"}
# No flush: its caller, who closes a file, could not be killed while he waits for the answer.
SILENT = {"forget", "batch_forget"}  # get no answer
VALID_MODE, VALID_SIZE = 1, 8
MOST_BYTES = 1 << 17
MINOR = 31
LOOK_S = 0.05


def mount(fd, where):
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"lockstep_test", os.fsencode(where), b"fuse", 0, options) != 0:
        sys.exit(f"cannot mount at {where}: {os.strerror(ctypes.get_errno())}")


def words(body):
    return [os.fsdecode(word) for word in body.split(b"\0")]


class Server:
    def __init__(self, fd, root, control):
        self.fd, self.root, self.control = fd, root, control
        self.paths, self.ids = {1: "."}, {".": 1}
        self.next_id, self.path = 2, "."
        self.held = {}  # requests by their number

    def at(self, path):
        return os.path.join(self.root, path)

    def child(self, node, name):
        return os.path.normpath(os.path.join(self.paths[node], name))

    def attributes(self, path):
        s = os.lstat(self.at(path))
        times = [int(t) for t in (s.st_atime, s.st_mtime, s.st_ctime)]
        nanos = [t % 10**9 for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
        return ATTR.pack(s.st_ino, s.st_size, s.st_blocks, *times, *nanos, s.st_mode, s.st_nlink,
                         s.st_uid, s.st_gid, 0, 4096, 0)

    def entry(self, path):
        attributes = self.attributes(path)
        if path not in self.ids:
            self.ids[path], self.paths[self.next_id] = self.next_id, path
            self.next_id += 1
        return ENTRY.pack(self.ids[path], 0, 0, 0, 0, 0) + attributes

    def forget_path(self, path):
        self.ids.pop(path, None)

    def moved(self, old, new):
        self.forget_path(new)
        for path, node in list(self.ids.items()):
            if path == old or path.startswith(old + "/"):
                del self.ids[path]
                self.ids[new + path[len(old):]] = node
                self.paths[node] = new + path[len(old):]

    def lookup(self, node, body):
        self.path = self.child(node, words(body)[0])
        return self.entry(self.path)

    def getattr(self, node, _):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(self.paths[node])

    def setattr(self, node, body):
        fields = SETATTR.unpack_from(body)
        if fields[0] & VALID_SIZE:
            os.truncate(self.at(self.paths[node]), fields[3])
        if fields[0] & VALID_MODE:
            os.chmod(self.at(self.paths[node]), stat.S_IMODE(fields[11]))
        return self.getattr(node, body)

    def mkdir(self, node, body):
        self.path = self.child(node, words(body[8:])[0])
        os.mkdir(self.at(self.path), struct.unpack_from("<I", body)[0])
        return self.entry(self.path)

    def unlink(self, node, body):
        self.path = self.child(node, words(body)[0])
        os.unlink(self.at(self.path))
        self.forget_path(self.path)

    def rmdir(self, node, body):
        self.path = self.child(node, words(body)[0])
        os.rmdir(self.at(self.path))
        self.forget_path(self.path)

    def rename(self, node, body, skip=8):
        old, new = words(body[skip:])[:2]
        old = self.child(node, old)
        self.path = self.child(struct.unpack_from("<Q", body)[0], new)
        os.rename(self.at(old), self.at(self.path))
        self.moved(old, self.path)

    def rename2(self, node, body):
        return self.rename(node, body, 16)

    def link(self, node, body):
        self.path = self.child(node, words(body[8:])[0])
        os.link(self.at(self.paths[struct.unpack_from("<Q", body)[0]]), self.at(self.path))
        return self.entry(self.path)

    def open_path(self, path, flags, mode=0o600):
        kept = flags & (os.O_ACCMODE | os.O_TRUNC | os.O_CREAT | os.O_EXCL)
        return struct.pack("<QII", os.open(self.at(path), kept, mode), 0, 0)

    def open(self, node, body):
        return self.open_path(self.paths[node], struct.unpack_from("<I", body)[0])

    def create(self, node, body):
        flags, mode = struct.unpack_from("<II", body)
        self.path = self.child(node, words(body[16:])[0])
        opened = self.open_path(self.path, flags | os.O_CREAT, stat.S_IMODE(mode))
        return self.entry(self.path) + opened

    def read(self, _, body):
        handle, offset, size = IO.unpack_from(body)[:3]
        return os.pread(handle, size, offset)

    def write(self, _, body):
        handle, offset, size = IO.unpack_from(body)[:3]
        return struct.pack("<II", os.pwrite(handle, body[IO.size:IO.size + size], offset), 0)

    def statfs(self, *_):
        s = os.statvfs(self.root)
        return struct.pack("<5Q4I6I", s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree,
                           s.f_bsize, s.f_namemax, s.f_frsize, 0, *[0] * 6)

    def release(self, _, body):
        os.close(struct.unpack_from("<Q", body)[0])

    def done(self, *_):
        return b""

    fsync = fsyncdir = releasedir = done

    def opendir(self, *_):
        return struct.pack("<QII", 0, 0, 0)

    def readdir(self, node, body):
        _, offset, size = IO.unpack_from(body)[:3]
        out = b""
        names = [".", "..", *sorted(os.listdir(self.at(self.paths[node])))]
        for number, name in enumerate(names[offset:], offset + 1):
            raw = os.fsencode(name)
            each = struct.pack("<QQII", number, number, len(raw), 0) + raw
            each = each.ljust(-(-len(each) // 8) * 8, b"\0")
            if len(out) + len(each) > size:
                break
            out += each
        return out

    def init(self, _, body):
        ahead = struct.unpack_from("<4I", body)[2]
        return struct.pack("<4I2H2I2H8I", 7, MINOR, ahead, 0, 16, 12, MOST_BYTES, 1, 0, 0,
                           *[0] * 8)

    def answer(self, name, node, body):
        self.path = self.paths.get(node, "")
        try:
            if name is None:
                return -errno.ENOSYS, b""
            return 0, getattr(self, name)(node, body) or b""
        except OSError as error:
            return -error.errno, b""

    def told(self):
        try:
            return json.loads(self.control.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def stop_if_told(self, name):
        told = self.told()
        if "op" in told and name == told["op"] and told["name"] in self.path:
            self.control.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)

    def is_held(self, name, node):
        path = os.path.basename(self.paths.get(node, ""))
        return name == "write" and path == self.told().get("held")

    def reply(self, unique, failed, payload=b""):
        try:
            os.write(self.fd, OUT.pack(OUT.size + len(payload), failed, unique) + payload)
        except OSError as error:
            if error.errno != errno.ENOENT:  # its caller was killed
                raise

    def interrupt(self, body):
        """A signal for the caller of a request that is held."""
        unique = struct.unpack_from("<Q", body)[0]
        if self.held.pop(unique, None):
            self.reply(unique, -errno.EINTR)

    def on_request(self, request):
        _, op, unique, node, *_ = IN.unpack_from(request)
        name, body = NAMES.get(op), request[IN.size:]
        if name == "interrupt":
            self.interrupt(body)
        elif self.is_held(name, node):
            self.held[unique] = request
            print(f"held: {name} {self.paths[node]}", flush=True)
        elif name not in SILENT:
            self.reply(unique, *self.answer(name, node, body))
            self.stop_if_told(name)

    def let_go(self):
        if "held" not in self.told():
            while self.held:
                self.on_request(self.held.pop(next(iter(self.held))))

    def serve(self):
        while True:
            if self.held:
                self.let_go()
                if not select.select([self.fd], [], [], LOOK_S)[0]:
                    continue
            try:
                request = os.read(self.fd, MOST_BYTES + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return  # ENODEV: unmounted
            self.on_request(request)


def main():
    served, where, control = sys.argv[1:]
    os.umask(0)
    fd = os.open("/dev/fuse", os.O_RDWR)
    mount(fd, where)
    Server(fd, served, pathlib.Path(control)).serve()


main()
