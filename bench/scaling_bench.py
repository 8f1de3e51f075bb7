#!/usr/bin/env python3
"""How step time and memory grow with layers, width and ranks: a Markdown page and an SVG beside it.

  scaling_bench.py --bin build/release/bin --out docs/SCALING.md

One quantity at a time changes, the others stay: 8 layers, dim 256, 4 slots of 1 x 256 tokens a
step, full_shard on 2 ranks of 1 thread. Medians over the steps after the warm-up; memory is a
rank's peak of live tensors and its peak resident set.
"""
import argparse
import pathlib
import statistics
import tempfile

import job

SWEEPS = (("layers", "model.n_layers", (2, 4, 8, 16)), ("dim", "model.dim", (128, 256, 512, 768)),
          ("ranks", None, (1, 2, 3, 4)))
STEPS, WARMUP = 8, 3
BASE = {"model.n_layers": 8, "model.dim": 256, "model.n_heads": 8, "model.n_kv_heads": 4,
        "model.vocab_size": 2048, "training.seq_len": 256, "training.local_batch_size": 1,
        "training.slots": 4, "training.steps": STEPS}
PANEL_W, PANEL_H, MARGIN = 260, 150, 46
COUNTED = "\n## Counted: "  # the page from there on is not measured here, and stays


def measure(binaries, folder, name, ranks, keys):
    lines, whole = job.train(binaries, folder, name, ranks, BASE | keys)
    return {"step_s": statistics.median(line["step_time_s"] for line in lines[WARMUP:]),
            "live_mib": whole["peak_memory_GB"] * 1e9 / 2**20,
            "rss_mib": whole["peak_rss_GB"] * 1e9 / 2**20}


def sweep(binaries, folder, label, key, values):
    for value in values:
        ranks = value if key is None else 2
        yield value, measure(binaries, folder, f"{label}-{value}", ranks,
                             {} if key is None else {key: value})


def panel(x0, y0, title, points, unit):
    """Lines from zero, with the values written at the points."""
    top = max(y for _, y in points) * 1.15
    right = max(x for x, _ in points)
    place = [(x0 + MARGIN + x / right * (PANEL_W - MARGIN - 24),
              y0 + PANEL_H - 28 - y / top * (PANEL_H - 56)) for x, y in points]
    yield (f'<text x="{x0 + MARGIN}" y="{y0 + 14}" font-weight="bold">{title}</text>'
           f'<path d="M{x0 + MARGIN} {y0 + 24}V{y0 + PANEL_H - 28}H{x0 + PANEL_W - 8}" '
           'fill="none" stroke="#888"/>')
    yield ('<polyline fill="none" stroke="#1668b0" stroke-width="2" points="'
           + " ".join(f"{x:.1f},{y:.1f}" for x, y in place) + '"/>')
    for (x, y), (value, height) in zip(place, points):
        yield (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1668b0"/>'
               f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="middle">{height:.3g}{unit}</text>'
               f'<text x="{x:.1f}" y="{y0 + PANEL_H - 14}" text-anchor="middle">{value}</text>')


def plot(results):
    width, height = 2 * PANEL_W + 20, len(results) * (PANEL_H + 10)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" '
           'fill="white"/>')
    for row, (label, points) in enumerate(results.items()):
        for column, (what, unit) in enumerate((("step_s", " s"), ("live_mib", ""))):
            title = f"{'step time' if column == 0 else 'peak memory, MiB'} against {label}"
            yield from panel(column * (PANEL_W + 10), row * (PANEL_H + 10), title,
                             [(x, m[what]) for x, m in points], unit)
    yield "</svg>"


def page(results, image):
    yield "# What a step costs against layers, width and ranks"
    yield "`python3 bench/scaling_bench.py --bin build/release/bin --out docs/SCALING.md`\n"
    yield ("8 layers, dim 256, vocabulary 2048, 4 slots of 1 x 256 tokens a step, fp32, full_shard "
           "on 2 ranks of\n1 thread, but for what a table changes. *2-core CPU, Gloo over "
           "loopback: 3 and 4 ranks share 2 cores.*\n")
    yield f"![step time and peak memory]({image})\n"
    for label, points in results.items():
        yield f"| {label} | step | peak of live tensors, a rank | peak resident set, a rank |"
        yield "| --- | --- | --- | --- |"
        for value, m in points:
            yield (f"| {value} | {m['step_s']:.3f} s | {m['live_mib']:.0f} MiB | "
                   f"{m['rss_mib']:.0f} MiB |")
        yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the Markdown page")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job.prepare_tokens(a.bin.resolve(), folder)
        results = {label: list(sweep(a.bin.resolve(), folder, label, key, values))
                   for label, key, values in SWEEPS}
    image = a.out.with_suffix(".svg")
    image.write_text("\n".join(plot(results)) + "\n")
    counted = a.out.read_text().partition(COUNTED) if a.out.exists() else ("", "", "")
    a.out.write_text("\n".join(page(results, image.name)) + "".join(counted[1:]))


main()
