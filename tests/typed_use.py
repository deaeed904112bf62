"""What type checkers see on a user's side; checked by mypy, never run.

Every "type: ignore" stands for a mistake that has to be told: where it is not, mypy calls the comment unused.
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from texseg import TextureSegmenter, segment
from texseg.method.clusters import Record
from texseg.models import ACM

image = np.zeros((64, 96))

assert_type(segment(image, 3), NDArray[np.int32])
segment(image, 3, preset="acurate")  # type: ignore[arg-type]
segment(image, 3, smothness=2.0)  # type: ignore[call-arg]
segment(image, "3")  # type: ignore[arg-type]

model = TextureSegmenter(3, preset="plain").fit(image)
assert_type(model, TextureSegmenter)
assert_type(model.labels_, NDArray[np.int32] | Any)
assert_type(model.confidence_, NDArray[np.float32] | Any)
assert_type(model.history_, list[Record])
assert_type(model.predict(image), NDArray[np.int32] | Any)
assert_type(model.predict_proba(image), NDArray[np.float32] | Any)
model.labels_.max(), model.confidence_.mean(), [labels.shape for labels in model.predict([image])]
TextureSegmenter(3, modle="smm")  # type: ignore[call-arg]
TextureSegmenter(3, model="ssm")  # type: ignore[arg-type]
model.fit(image, maks=None)  # type: ignore[call-arg]
model.predict(image, unknwon=True)  # type: ignore[call-arg]

assert_type(ACM(3).fit(image), ACM)
assert_type(ACM(3).fit(image).labels_, NDArray[np.intp])
ACM(3, asignment="hard")  # type: ignore[call-arg]
