"""Run calls as told on standard input: what speed.py --against starts, once for each revision.

Every line is "image channel_axis n_segments labels": a file in NumPy's format, numbers or "None", and the
file to which labels are written. The answer is one line of JSON: CPU seconds by phase, and Python calls.
"""

import cProfile
import json
import os
import sys
import time
import warnings
from functools import partial

import cv2
import numpy as np
from threadpoolctl import threadpool_limits

import texseg


def main() -> None:
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    cv2.setNumThreads(1)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        image, labels = np.load(line.split()[0]), line.split()[3]
        axis, n_segments = (None if word == "None" else int(word) for word in line.split()[1:3])
        marks: list[tuple[str, float]] = []
        call = partial(texseg.segment, image, n_segments, random_state=0, n_jobs=1, channel_axis=axis)
        start = time.process_time()
        found = call(callback=lambda now, marks=marks: marks.append((now.phase, time.process_time())))
        marks.append(("", time.process_time()))
        phases = {"checks": marks[0][1] - start}
        for (phase, begun), (_, ended) in zip(marks, marks[1:], strict=False):
            phases[phase] = phases.get(phase, 0) + ended - begun
        np.save(labels, found)
        calls = 0
        if labels.endswith("counted.npy"):
            profile = cProfile.Profile()
            profile.runcall(call)
            calls = sum(entry.callcount for entry in profile.getstats())
        answers.write(json.dumps([phases, calls]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
