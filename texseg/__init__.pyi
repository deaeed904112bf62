from . import metrics as metrics
from . import models as models
from . import plot as plot
from . import report as report
from . import synth as synth
from .estimator import TextureSegmenter as TextureSegmenter
from .io.polygons import polygons as polygons
from .io.polygons import write_polygons as write_polygons
from .io.read import read_image as read_image
from .io.read import read_labels as read_labels
from .io.read import read_volume as read_volume
from .io.regions import region_table as region_table
from .io.regions import segment_table as segment_table
from .io.regions import volume_table as volume_table
from .io.write import write_labels as write_labels
from .method.matching import match_textures as match_textures
from .metrics import match_labels as match_labels
from .progress import ProgressBar as ProgressBar
from .segmenter import segment as segment

__version__: str
