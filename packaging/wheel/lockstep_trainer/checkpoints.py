"""Reads checkpoints by the names of their tensors, through index.h5 (docs/FORMAT.md)."""
import difflib
import json
import math
import pathlib
import re

from .errors import LockstepError, need

FORMAT, VERSIONS = "lockstep-checkpoint", (1, 2, 3)
KEYS = {"step", "generation", "world_size", "codec", "tensors"}  # that every manifest has
NAME = re.compile(r"step_(\d+)\.g(\d+)-[^-]+(?:-(\d+))?")  # step . generation - nonce - attempt
MANIFEST_END = re.compile(rb'"self_xxh3": "[0-9a-f]{16}"\n\}\n\Z')
ZSTD_FILTER = 32015
BLOCK_ELEMENTS = 1 << 20  # that a fingerprint is taken of at a time


class Checkpoint:
    """The state of a run after a step, as whole tensors.

    path: its folder, a pathlib.Path
    step, generation, world_size: int; the step after which it was saved, and how many ranks wrote
    size_bytes: int, of the files of its ranks
    manifest: dict, its manifest.json (docs/FORMAT.md)
    suspect: bool; whether an audit found that its bits may be wrong (docs/AUDIT.md)

    Instances come from open_checkpoint, Run.checkpoint and Run.checkpoints. A running job may
    remove an old checkpoint at any time; after that, `tensor` fails.
    """

    def __init__(self, path, suspect=False):
        self.path = pathlib.Path(path).absolute()
        self.manifest = _read_manifest(self.path / "manifest.json")
        self.suspect = suspect
        self.step, self.generation = self.manifest["step"], self.manifest["generation"]
        self.world_size = self.manifest["world_size"]
        parts = self.manifest.get("parts", [])
        self.size_bytes = sum(file["size_bytes"] for file in self.manifest.get("files", [])) + \
            sum(part["stored_bytes"] for part in parts)
        self._tensors = {tensor["name"]: tensor for tensor in self.manifest["tensors"]}
        self._whole = False

    def __repr__(self):
        return f"<Checkpoint of step {self.step}, {self.size_bytes / 1e6:.1f} MB, {self.path}>"

    def names(self):
        """The names of all tensors, sorted: ["model.embed_tokens.weight", …]."""
        return list(self._tensors)

    def kinds(self, name):
        """The kinds that this tensor has, sorted: "param", and "adam_m" with "adam_v", or
        "momentum" of a matrix that Muon updates. Errors: LockstepError for an unknown name."""
        return sorted(self._tensor(name)["fingerprint"])

    def shape(self, name):
        """The shape of this tensor, a tuple; () of a scalar. Errors: as kinds."""
        return tuple(self._tensor(name)["global_shape"])

    def tensor(self, name, kind="param", verify=True):
        """One whole tensor: a numpy array of float32, of shape `shape(name)`, row-major.

        kind: "param" (the master weights), "adam_m", "adam_v" or "momentum"
        verify: compare the values with the fingerprint in the manifest, which takes several passes
            over them
        bfloat16 values are returned as float32, without a change.
        Errors: LockstepError for an unknown name or kind, a file that is missing, cut off or
        damaged, and values that are not those that were saved; MissingPackage (numpy, h5py, and
        hdf5plugin where the checkpoint is compressed by zstd).
        """
        expected = self._fingerprint(name, kind)
        self.check_files()
        numpy, h5py = (need(package, "Checkpoint.tensor") for package in ("numpy", "h5py"))
        if self.manifest["codec"] == "zstd" and not h5py.h5z.filter_avail(ZSTD_FILTER):
            need("hdf5plugin", "Checkpoint.tensor, for a checkpoint that is compressed by zstd,")
        values = self._read(h5py, numpy, f"{kind}/{name}", self.shape(name))
        is_bf16 = self._tensor(name).get("dtype", {}).get(kind) == "bfloat16"
        if verify and _fingerprint_of(numpy, values, is_bf16) != expected:
            raise LockstepError(f"{self.path}: {kind}/{name} has other values than those that were "
                                f"saved. {self._who_says_more()}")
        return values

    def check_files(self):
        """Checks that the checkpoint is complete: all files that the manifest names are there with
        their sizes, and together they have each element of each tensor once. No tensor is read.
        Errors: LockstepError with the first file or tensor for which this is not so."""
        if self._whole:
            return
        files, pieces = self.manifest.get("files", []), []
        if "parts" in self.manifest:
            parts = self.manifest["parts"]
            files = [file for part in parts for file in self._files_of(part)]
            pieces = [piece for part in parts for piece in part["pieces"]]
        else:
            pieces = [piece for file in files for piece in file["pieces"]]
        for file in files:
            _check_size(self.path / file["name"], file["size_bytes"])
        self._check_pieces(pieces)
        self._whole = True

    def _tensor(self, name):
        if name not in self._tensors:
            near = difflib.get_close_matches(name, self._tensors, n=3)
            hint = f"; near it: {', '.join(near)}" if near else "; names() lists all"
            raise LockstepError(f"{self.path}: no tensor is named {name!r}{hint}")
        return self._tensors[name]

    def _fingerprint(self, name, kind):
        kinds = self._tensor(name)["fingerprint"]
        if kind not in kinds:
            raise LockstepError(f"{self.path}: the tensor {name} has no kind {kind!r}; it has "
                                f"{', '.join(sorted(kinds))}")
        return int(kinds[kind], 16)

    def _files_of(self, part):
        path = self.path / part["name"]
        _check_size(path, part["size_bytes"])
        try:
            files = json.loads(path.read_bytes())["files"]
        except (ValueError, TypeError, KeyError) as error:
            raise LockstepError(f"{path}: this part of the manifest is damaged ({error})") from None
        if len(files) != part["file_count"]:
            raise LockstepError(f"{path}: this part of the manifest names {len(files)} files, and "
                                f"manifest.json says {part['file_count']}")
        return files

    def _check_pieces(self, pieces):
        ends = {f"{kind}/{name}": 0
                for name, tensor in self._tensors.items() for kind in tensor["fingerprint"]}
        for key, start, length in sorted(pieces):
            if key not in ends or start != ends[key]:
                raise LockstepError(f"{self.path}: manifest.json is not complete: the elements of "
                                    f"{key} from {start} on do not follow the ones before them")
            ends[key] += length
        for key, end in ends.items():
            elements = math.prod(self.shape(key.split("/", 1)[1]))
            if end != elements:
                raise LockstepError(f"{self.path}: manifest.json is not complete: it has {end} of "
                                    f"the {elements} elements of {key}")

    def _read(self, h5py, numpy, key, shape):
        path = self.path / "index.h5"
        if not path.exists():
            raise LockstepError(f"{path} does not exist: `lockstep checkpoint index {self.path}` "
                                "writes it")
        try:
            with h5py.File(path, "r") as index:
                dataset = index[key]
                if dataset.shape != (shape or (1,)):
                    raise LockstepError(f"{path}: {key} has the shape {dataset.shape}, and "
                                        f"manifest.json says {shape}: `lockstep checkpoint index "
                                        f"{self.path}` writes the index anew")
                return numpy.asarray(dataset[...], dtype=numpy.float32).reshape(shape)
        except (OSError, KeyError) as error:
            raise LockstepError(f"{path}: {key} cannot be read: {error}. {self._who_says_more()}") \
                from error

    def _who_says_more(self):
        return f"`lockstep checkpoint verify {self.path}` says which bytes are damaged"


def open_checkpoint(path):
    """The Checkpoint at `path`: its own folder; or a folder of checkpoints or a run's folder, of
    which the newest is taken that no audit made suspect.

    Errors: LockstepError where there is no checkpoint, and where it is not complete
    (Checkpoint.check_files).
    """
    folder = pathlib.Path(path)
    if (folder / "manifest.json").exists():
        suspects = _read_suspects(folder.absolute().parent)
        found = Checkpoint(folder)
        found.suspect = _is_suspect(found, suspects)
    else:
        inside = folder / "checkpoints"
        found = choose(list_checkpoints(inside if inside.is_dir() else folder), None, folder)
    found.check_files()
    return found


def list_checkpoints(folder):
    """The checkpoints in `folder`, the oldest first. What has no valid manifest is left out: it is
    the rest of a save that was not finished, or of a checkpoint that is being removed."""
    suspects, found = _read_suspects(folder), []
    for path in folder.glob("step_*/manifest.json"):
        name = NAME.fullmatch(path.parent.name)
        try:
            checkpoint = Checkpoint(path.parent)
        except LockstepError:
            continue
        if name:
            checkpoint.suspect = _is_suspect(checkpoint, suspects)
            found.append(([int(number or 1) for number in name.groups()], checkpoint))
    return [checkpoint for _, checkpoint in sorted(found, key=lambda each: each[0])]


def choose(checkpoints, step, folder):
    """The newest one of `step`; with None the newest of all that is not suspect."""
    fit = [each for each in checkpoints
           if (not each.suspect if step is None else each.step == step)]
    if fit:
        return fit[-1]
    steps = ", ".join(f"{each.step}{' (suspect)' if each.suspect else ''}" for each in checkpoints)
    wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
    raise LockstepError(f"{folder}: there is {wanted}; there are those of steps {steps}" if steps
                        else f"{folder}: there is {wanted}")


def _read_manifest(path):
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise LockstepError(f"{path}: there is no checkpoint, or it cannot be read: {error}") \
            from error
    try:
        manifest = json.loads(raw)
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or not MANIFEST_END.search(raw):
        raise LockstepError(f"{path}: the manifest is cut off or damaged, so this is not a "
                            "checkpoint")
    if manifest.get("format") != FORMAT or manifest.get("format_version") not in VERSIONS:
        raise LockstepError(f"{path}: the format is {manifest.get('format')} version "
                            f"{manifest.get('format_version')}, and this package reads {FORMAT} "
                            f"versions {', '.join(map(str, VERSIONS))}")
    missing = sorted(KEYS - manifest.keys())
    if missing:
        raise LockstepError(f"{path}: the manifest is damaged: it has no {', '.join(missing)}")
    return manifest


def _check_size(path, size_bytes):
    try:
        found = path.stat().st_size
    except OSError as error:
        raise LockstepError(f"{path}: a file of this checkpoint is missing: {error}") from error
    if found != size_bytes:
        raise LockstepError(f"{path}: this file has {found} bytes, and the manifest says "
                            f"{size_bytes}: it is cut off or damaged")


def _read_suspects(folder):
    path = folder / "suspect.json"
    try:
        return json.loads(path.read_bytes())["suspect"]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        raise LockstepError(f"{path} is damaged, so no checkpoint of this folder can be trusted: "
                            f"{error}") from None


def _is_suspect(checkpoint, suspects):
    return any(checkpoint.step > each["after_step"] and checkpoint.generation <= each["generation"]
               for each in suspects)


def _fingerprint_of(numpy, values, is_bf16):
    """docs/FORMAT.md, "Fingerprint"."""
    words, total, half = values.reshape(-1).view(numpy.uint32), 0, numpy.uint64(32)
    for start in range(0, words.size, BLOCK_ELEMENTS):
        block = words[start:start + BLOCK_ELEMENTS].astype(numpy.uint64)
        if is_bf16:
            block >>= numpy.uint64(16)
        z = numpy.arange(start + 1, start + 1 + block.size, dtype=numpy.uint64)
        z *= numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> half)) * numpy.uint64(0xD6E8FEB86659FD93)
        block *= (z ^ (z >> half)) | numpy.uint64(1)
        total += int(block.sum(dtype=numpy.uint64))
    return total % 2**64
