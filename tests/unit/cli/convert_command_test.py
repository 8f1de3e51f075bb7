"""Files of other tools through the command, by their endings: convert_command_test.py PROGRAM"""
import os
import pathlib
import subprocess
import sys
import tempfile

# JSON is YAML, so this module reads what the test writes on a machine without PyYAML as well.
YAML = "import json\n\n\ndef safe_load(text):\n    return json.loads(text)\n"


def convert(*words, **environment):
    return subprocess.run([sys.argv[1], "convert-config", *words], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **environment})


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    titan = folder / "titan.toml"
    titan.write_text("[training]\nsteps = 7\ndataset = \"c4\"\n")
    done = convert(titan)
    assert done.returncode == 0 and "steps = 7\n" in done.stdout, done
    assert "# training.dataset = c4: no counterpart: " in done.stdout, done
    assert "a config of torchtitan: 1 key taken, 0 needless, 1 without a" in done.stderr, done
    run = folder / "run.toml"
    run.write_text(done.stdout)
    taken = subprocess.run([sys.argv[1], "plan", run, "--model.vocab_size=300"],
                           capture_output=True, text=True, timeout=60)
    assert taken.returncode == 0, taken

    deepspeed = folder / "ds.json"
    deepspeed.write_text('{"gradient_clipping": 0.5, "zero_optimization": {"stage": 2}}')
    done = convert(deepspeed)
    assert done.returncode == 0 and 'strategy = "shard_grad_op"' in done.stdout, done

    sft, modules = folder / "sft.yaml", folder / "modules"
    sft.write_text('{"base_model": "m", "micro_batch_size": 2, "sequence_len": 64}')
    modules.mkdir()
    (modules / "yaml.py").write_text(YAML)
    done = convert(sft, "--ranks", "4", PYTHONPATH=str(modules))
    assert done.returncode == 0 and "slots = 4\n" in done.stdout, done
    (modules / "yaml.py").write_text("raise ImportError\n")
    done = convert(sft, PYTHONPATH=str(modules))
    assert done.returncode == 64 and "has no module yaml: install PyYAML" in done.stderr, done

    for name, said in (("gone.toml", "gone.toml"), ("train.py", "Python is not run")):
        done = convert(folder / name)
        assert done.returncode == 64 and said in done.stderr, done
