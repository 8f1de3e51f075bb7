"""What --version says, and how CMake finds the commit: version_test.py PROGRAM [COMMIT_CMAKE]"""
import pathlib
import re
import subprocess
import sys
import tempfile


def git(folder, *words):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@localhost",
                    *words], check=True, capture_output=True)


def commit_of(commit_cmake, folder):
    """What cmake/Commit.cmake finds there."""
    script = pathlib.Path(folder, "ask.cmake")
    script.write_text(f'include("{commit_cmake}")\nlockstep_commit(commit "{folder}")\n'
                      'message("commit: ${commit}")\n')
    done = subprocess.run(["cmake", "-P", script], check=True, capture_output=True, text=True)
    script.unlink()
    return re.fullmatch(r"commit: (\S+)\n", done.stderr).group(1)


def check_commits(commit_cmake, folder):
    repository, archive = folder / "repository", folder / "repository" / "archive"
    archive.mkdir(parents=True)
    file = repository / "file"
    file.write_text("one")
    git(repository, "init")
    git(repository, "add", "file")
    git(repository, "commit", "-m", "one")
    git(repository, "tag", "-a", "v1", "-m", "tags are not asked")
    clean = commit_of(commit_cmake, repository)
    assert re.fullmatch("[0-9a-f]{12}", clean), clean
    file.write_text("two")
    assert commit_of(commit_cmake, repository) == clean + "+"
    # An archive that was unpacked inside another repository has no commit.
    assert commit_of(commit_cmake, archive) == "unknown"


def check_program(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    line = (rf"{pathlib.Path(program).name} \d+\.\d+\.\d+, commit (unknown|[0-9a-f]{{12,}}\+?), "
            r"(LibTorch \d\S+( with CUDA)?|no LibTorch)\n")
    assert done.returncode == 0 and done.stderr == "", done
    assert re.fullmatch(line, done.stdout), done.stdout


check_program(sys.argv[1])
for script in sys.argv[2:]:
    with tempfile.TemporaryDirectory() as scratch:
        check_commits(script, pathlib.Path(scratch))
