"""Images by blocks: labels against those of the whole, rate, memory, samples, and runs that are killed.

Usage: python benchmarks/blocks.py [--side 2048] [--large 20000] [--blocks 6]
           [--cluster 8192] [--only labels,rate,sample,kill,cluster]

The large image is written to a temporary folder (tiled TIFF, one byte a pixel) and is only read in part: its
rate and peak memory are those of its first blocks.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import tifffile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, limit_threads, machine
from benchmarks.speed import cpu_of_children, mirrored
from texseg import TextureSegmenter, match_labels, metrics
from texseg.io.read import open_source
from texseg.method.blocks import ArrayWindows, Request, join_blocks, plan_blocks, read_block, read_blocks
from texseg.method.sampling import sample_windows

K = 5
IMAGES = ["five_textures.png", "three_real_textures.png", "scattered_textures.png"]


def write_large(path: Path, side: int) -> None:
    """Write the mirrored sample mosaic, again and again, tile by tile."""
    base = mirrored(2048)
    steps = range(0, side, 512)
    tiles = (base[y % 2048 :, x % 2048 :][:512, :512] for y in steps for x in steps)
    tifffile.imwrite(path, tiles, shape=(side, side), dtype="u1", tile=(512, 512), compression="zlib")


def print_labels(side: int, names: list[str]) -> None:
    print(f"\n{side} x {side}, one model: share of the pixels with the label of the whole; Mpx a CPU second")
    table = Table([("image", -20), ("segments", -8), ("same", 9), ("whole", 6), ("blocks", 6)])
    for name in names:
        image, small = (mirrored(length, name) for length in (side, 512))
        for asked in (K, None):
            model = TextureSegmenter(asked, random_state=0).fit(small)
            start = time.process_time()
            whole = model.predict(image)
            seconds = [time.process_time() - start]
            blocks = plan_blocks(image.shape, model.textures_)
            found = np.empty(image.shape, np.int32)
            start = time.process_time()
            about, kept = (model.textures_, blocks, Request()), {}
            read_blocks(ArrayWindows(image), *about, kept)
            for place, labels, _ in join_blocks(*about, kept):
                found[blocks.core(place)] = labels
            seconds.append(time.process_time() - start)
            rates = [side**2 / 1e6 / s for s in seconds]
            how = "given" if asked else f"{model.n_segments_} found"
            table.row(name, how, f"{np.mean(found == whole):.6f}", *rates)


def print_cluster(side: int) -> None:
    """Compare two workers of dask.distributed with one process, on a zarr array."""
    import dask
    import distributed
    import zarr

    model = TextureSegmenter(K, random_state=0).fit(mirrored(512))
    with tempfile.TemporaryDirectory() as folder:
        image = zarr.create_array(f"{folder}/image", shape=(side, side), chunks=(1024, 1024), dtype="u1")
        image[:] = mirrored(side)
        lazy = model.predict(image)
        start, before = time.perf_counter(), time.process_time()
        with dask.config.set(scheduler="sync"):
            lazy.to_zarr(f"{folder}/one")
        walls, cpus = [time.perf_counter() - start], [time.process_time() - before]
        before = cpu_of_children()
        spawn = "distributed.nanny.pre-spawn-environ"
        allocation = {f"{spawn}.MALLOC_TRIM_THRESHOLD_": 2**28, f"{spawn}.MALLOC_MMAP_THRESHOLD_": 2**25}
        dask.config.set(allocation)  # see texseg.method.blocks
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
            start = time.perf_counter()
            lazy.to_zarr(f"{folder}/two")
            walls.append(time.perf_counter() - start)
        cpus.append(cpu_of_children() - before)
        one, two = (zarr.open_array(f"{folder}/{name}", mode="r")[:] for name in ("one", "two"))
    print(f"\n{side} x {side}, two workers against one process: {walls[0] / walls[1]:.2f} times as fast")
    print(f"(wall {walls[1]:.0f} for {walls[0]:.0f} s), CPU {cpus[1]:.0f} for {cpus[0]:.0f} s")
    print(f"same labels: {np.array_equal(one, two)}")


def print_rate(side: int, n_blocks: int) -> None:
    model = TextureSegmenter(K, random_state=0).fit(mirrored(512))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.tif")
        write_large(path, side)
        with open_source(path) as source:
            blocks = plan_blocks(source.shape, model.textures_)
            start, pixels = time.process_time(), 0
            for place in islice(blocks, n_blocks):
                reading = read_block(source, place, blocks, model.textures_, Request())
                pixels += reading.labels.size
            seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rate = pixels / 1e6 / seconds
    print(f"{side} x {side}, {n_blocks} of {len(blocks)} blocks: {rate:.2f} Mpx a CPU second, {peak:.2f} GB")


def print_sample(side: int) -> None:
    image = mirrored(side)
    labels = []
    for seed in (0, 1):
        crops = [image[window] for window in sample_windows(image.shape, seed)]
        labels.append(TextureSegmenter(K, random_state=0).fit(crops).predict(image))
    score = metrics.score(labels[0], match_labels(labels[1], labels[0]))
    print(f"{side} x {side}, fits to two samples of crops: ARI {score.ari:.4f}")


def print_kill(moments: int = 10) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "image.tif")
        tifffile.imwrite(path, mirrored(1024), tile=(256, 256), compression="zlib")
        command = [sys.executable, "-m", "texseg", "segment", str(path), "-k", str(K), "--memory", "1M", "-q"]
        start = time.perf_counter()
        subprocess.run([*command, "-o", f"{folder}/whole"], check=True, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        for moment in range(1, moments + 1):
            run = subprocess.Popen([*command, "--resume", "-o", f"{folder}/cut"], stderr=subprocess.DEVNULL)
            try:
                run.wait(seconds * moment / (moments + 1))
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
        subprocess.run([*command, "--resume", "-o", f"{folder}/cut"], check=True, stderr=subprocess.DEVNULL)
        files = [Path(folder, name, "image_labels.tif").read_bytes() for name in ("whole", "cut")]
        print(f"killed up to {moments} times and gone on with: same file {files[0] == files[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--large", type=int, default=20000)
    parser.add_argument("--blocks", type=int, default=6, help="of the large image that are labelled")
    parser.add_argument("--images", default=",".join(IMAGES), help="sample images whose labels are compared")
    parser.add_argument("--cluster", type=int, default=8192, help="side of the image that two workers label")
    parser.add_argument("--only", default="labels,rate,sample,kill,cluster", help="parts, comma-separated")
    options = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    parts = {
        "rate": lambda: print_rate(options.large, options.blocks),
        "labels": lambda: print_labels(options.side, options.images.split(",")),
        "cluster": lambda: print_cluster(options.cluster),
        "sample": lambda: print_sample(options.side),
        "kill": print_kill,
    }
    for name, show in parts.items():
        if name in options.only.split(","):
            show()


if __name__ == "__main__":
    main()
