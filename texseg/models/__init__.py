"""The family of co-occurrence models: one file per model, with its equations at the top."""

from texseg.counts.blocks import BlockCounts
from texseg.models.acm import ACM
from texseg.models.backoff import Backoff
from texseg.models.committee import Committee
from texseg.models.estimator import cross_validate, heldout_log_likelihood
from texseg.models.hacm import HACM, Tree
from texseg.models.planted import PlantedTree, planted_tree
from texseg.models.pmm import PMM
from texseg.models.retrieval import Match, Retrieval, View
from texseg.models.scm import SCM
from texseg.models.sites import SiteLabels, site_labels
from texseg.models.smm import SMM

__all__ = [
    "ACM",
    "Backoff",
    "BlockCounts",
    "Committee",
    "HACM",
    "Match",
    "PMM",
    "PlantedTree",
    "Retrieval",
    "SCM",
    "SMM",
    "SiteLabels",
    "Tree",
    "View",
    "cross_validate",
    "heldout_log_likelihood",
    "planted_tree",
    "site_labels",
]
