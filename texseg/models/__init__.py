"""The family of co-occurrence models, one model a file, the equations at the top of each."""

from texseg.models.acm import ACM
from texseg.models.estimator import cross_validate, heldout_log_likelihood
from texseg.models.pmm import PMM
from texseg.models.smm import SMM

__all__ = ["ACM", "PMM", "SMM", "cross_validate", "heldout_log_likelihood"]
