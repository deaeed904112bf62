from . import metrics as metrics
from . import models as models
from . import synth as synth
from .metrics import match_labels as match_labels
from .segmenter import TextureSegmenter as TextureSegmenter
from .segmenter import segment as segment
