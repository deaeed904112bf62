from . import metrics as metrics
from . import models as models
from . import synth as synth
