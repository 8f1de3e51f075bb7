"""lockstep_trainer.Checkpoint on golden checkpoints and damaged copies of them."""
import shutil
import subprocess
import sys
import unittest.mock

from package import GOLDEN, NAME, PACKAGE, FolderTest, change_manifest, golden_copy, main
import h5py
import numpy
from h5py_golden_test import values
from lockstep_trainer import LockstepError, MissingPackage, open_checkpoint

SHAPES = {"cube": (5, 7, 11), "embed.weight": (57, 33), "layers.0.wq.weight": (37, 41),
          "long.weight": (3, 180001), "norm.weight": (3,), "one": (1, 1), "scale": ()}
KINDS = ["adam_m", "adam_v", "param"]


class Reads(FolderTest):
    def test_golden_checkpoint_of_each_codec_gives_the_values_that_were_written(self):
        for which in ("checkpoint_v1", "checkpoint_v1_spliced", "checkpoint_v1_hdf5_1_14"):
            for codec in ("zstd", "gzip", "none"):
                self.check_values(open_checkpoint(GOLDEN / which / codec / NAME))
        self.check_values(open_checkpoint(GOLDEN / "checkpoint_v1_shared/zstd" / NAME))

    def check_values(self, checkpoint):
        self.assertEqual((checkpoint.step, checkpoint.generation), (12, 1))
        self.assertEqual(checkpoint.names(), [name for name in SHAPES if name in
                                              checkpoint.names()])
        self.assertLess({"cube", "norm.weight", "scale"}, set(checkpoint.names()))
        for name in checkpoint.names():
            self.assertEqual(checkpoint.kinds(name), KINDS)
            for kind in KINDS:
                tensor = checkpoint.tensor(name, kind)
                self.assertEqual((tensor.dtype, tensor.shape), (numpy.float32,
                                                                checkpoint.shape(name)))
                words = tensor.reshape(-1).view(numpy.uint32)
                self.assertTrue(numpy.array_equal(words, values(f"{kind}/{name}", words.size)),
                                (checkpoint, kind, name))

    def test_first_checkpoint_format_has_the_shapes_of_its_manifest(self):
        checkpoint = open_checkpoint(GOLDEN / "checkpoint_v1/zstd" / NAME)
        self.assertEqual({name: checkpoint.shape(name) for name in checkpoint.names()}, SHAPES)
        self.assertEqual(checkpoint.size_bytes, sum(
            path.stat().st_size for path in checkpoint.path.glob("rank_*.h5")))

    def test_folder_of_checkpoints_gives_the_newest_that_is_not_suspect(self):
        golden_copy(self.folder / "checkpoints" / NAME)
        for number in (9, 10):  # of attempts; as text "10" comes before "9"
            newer = self.folder / f"checkpoints/step_00000013.g2-aaaaaa-{number}"
            golden_copy(newer)
            change_manifest(newer, lambda m: m.update(step=13, generation=2))
        self.assertEqual(open_checkpoint(self.folder).path, newer)
        self.assertEqual(open_checkpoint(newer.parent).path, newer)
        (newer.parent / "suspect.json").write_text(
            '{"suspect": [{"after_step": 12, "generation": 2}]}')
        self.assertEqual(open_checkpoint(self.folder).path.name, NAME)
        self.assertTrue(open_checkpoint(newer).suspect)
        (newer.parent / "suspect.json").write_text("{")
        self.fails(LockstepError, lambda: open_checkpoint(self.folder), "suspect.json is damaged")

    def test_manifest_in_parts_is_checked_and_its_missing_index_is_named(self):
        checkpoint = open_checkpoint(GOLDEN / "checkpoint_v3/zstd" / NAME)
        self.assertEqual(checkpoint.size_bytes, sum(
            path.stat().st_size for path in checkpoint.path.glob("rank_*.h5")))
        self.fails(LockstepError, lambda: checkpoint.tensor("cube"),
                   "index.h5 does not exist", "lockstep checkpoint index")


class Refuses(FolderTest):
    def setUp(self):
        super().setUp()
        self.path = golden_copy(self.folder / NAME)

    def opening_fails(self, *words):
        self.fails(LockstepError, lambda: open_checkpoint(self.path), *words)

    def test_unknown_name_or_kind_is_named_with_what_there_is(self):
        checkpoint = open_checkpoint(self.path)
        self.fails(LockstepError, lambda: checkpoint.tensor("embed.weigth"), "embed.weigth",
                   "embed.weight")
        self.fails(LockstepError, lambda: checkpoint.tensor("cube", "momentum"), "momentum",
                   "adam_m, adam_v, param")

    def test_no_checkpoint_is_an_error_that_names_the_folder(self):
        shutil.rmtree(self.path)
        self.fails(LockstepError, lambda: open_checkpoint(self.folder), str(self.folder),
                   "no checkpoint")
        self.opening_fails(NAME, "no checkpoint")

    def test_cut_off_manifest_is_no_checkpoint(self):
        manifest = self.path / "manifest.json"
        whole = manifest.read_bytes()
        for length in (0, len(whole) // 2, len(whole) - 1):
            manifest.write_bytes(whole[:length])
            self.opening_fails("manifest.json", "cut off")

    def test_other_format_version_is_refused(self):
        change_manifest(self.path, lambda m: m.update(format_version=4))
        self.opening_fails("version 4", "1, 2, 3")

    def test_manifest_without_a_key_is_refused(self):
        change_manifest(self.path, lambda m: m.pop("codec"))
        self.opening_fails("it has no codec")

    def test_missing_or_cut_off_rank_file_is_named(self):
        rank = self.path / "rank_00001.h5"
        with open(rank, "r+b") as file:
            file.truncate(1000)
        self.opening_fails("rank_00001.h5", "1000 bytes")
        rank.unlink()
        self.opening_fails("rank_00001.h5", "missing")

    def test_elements_that_no_file_has_are_named(self):
        change_manifest(self.path, lambda m: m["files"][0]["pieces"].pop(0))
        self.opening_fails("not complete", "param/embed.weight from 940 on")

    def test_elements_that_two_files_have_are_named(self):
        change_manifest(self.path, lambda m: m["files"][0]["pieces"].append(
            ["param/norm.weight", 0, 3]))
        self.opening_fails("not complete", "param/norm.weight")

    def test_tensor_longer_than_its_pieces_is_named(self):
        change_manifest(self.path, lambda m: m["tensors"][0].update(global_shape=[6, 7, 11]))
        self.opening_fails("385 of the 462 elements", "cube")

    def test_damaged_part_of_a_manifest_is_named(self):
        shutil.rmtree(self.path)
        golden_copy(self.path, which="checkpoint_v3")
        part = self.path / "manifest_00008.json"
        size = part.stat().st_size
        part.write_text('{"files": []}'.ljust(size))
        self.opening_fails("manifest_00008.json", "names 0 files")
        part.write_text("[]".ljust(size))
        self.opening_fails("manifest_00008.json", "damaged")

    def test_flipped_bit_in_a_rank_file_is_an_error(self):
        rank = self.path / "rank_00000.h5"
        checkpoint, refused = open_checkpoint(self.path), 0
        raw = bytearray(rank.read_bytes())
        for place in range(4000, len(raw), len(raw) // 8):
            rank.write_bytes(raw[:place] + bytes([raw[place] ^ 16]) + raw[place + 1:])
            for name, kind in [(name, kind) for name in SHAPES for kind in KINDS]:
                try:
                    words = checkpoint.tensor(name, kind).reshape(-1).view(numpy.uint32)
                except LockstepError as error:
                    self.assertIn("lockstep checkpoint verify", str(error))
                    refused += 1
                else:
                    self.assertTrue(numpy.array_equal(words, values(f"{kind}/{name}", words.size)))
        self.assertGreater(refused, 3)

    def test_index_with_other_values_or_shapes_is_an_error(self):
        checkpoint = open_checkpoint(self.path)
        with h5py.File(self.path / "index.h5", "w") as index:
            index["param/cube"] = numpy.zeros((5, 7, 11), numpy.float32)
            index["param/one"] = numpy.zeros((1, 2), numpy.float32)
        self.fails(LockstepError, lambda: checkpoint.tensor("cube"), "param/cube", "other values")
        self.assertEqual(checkpoint.tensor("cube", verify=False).sum(), 0)
        self.fails(LockstepError, lambda: checkpoint.tensor("one"), "(1, 2)", "(1, 1)")
        self.fails(LockstepError, lambda: checkpoint.tensor("scale"), "param/scale", "index.h5")


class Packages(FolderTest):
    def test_missing_package_is_named_with_the_command_that_installs_it(self):
        checkpoint = open_checkpoint(GOLDEN / "checkpoint_v1/gzip" / NAME)
        for package in ("numpy", "h5py"):
            with unittest.mock.patch.dict(sys.modules, {package: None}):
                self.fails(MissingPackage, lambda: checkpoint.tensor("cube"), "needs the "
                           f"package {package}", f"-m pip install {package}")

    def test_hdf5plugin_is_needed_for_zstd_alone(self):
        code = ("import sys; sys.modules['hdf5plugin'] = None\n"
                f"sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
                "from lockstep_trainer import open_checkpoint\n"
                f"checkpoint = open_checkpoint('{GOLDEN}/checkpoint_v1/' + sys.argv[1])\n"
                "print(checkpoint.tensor('cube').shape)\n")
        for codec, words in (("gzip", "(5, 7, 11)"), ("none", "(5, 7, 11)"),
                             ("zstd", "-m pip install hdf5plugin")):
            done = subprocess.run([sys.executable, "-c", code, codec], capture_output=True,
                                  text=True, check=False)
            self.assertIn(words, done.stdout + done.stderr)


main()
