"""Reports: one self-contained HTML file about a segmentation or a tree, to explore in any browser.

Everything is inside the file, pictures included; it can be opened from a mail attachment, and requests
nothing from the network, which its content security policy enforces.
"""

from texseg.report.pages import ReportEntry, write_index, write_report
from texseg.report.tree_page import write_tree_page

__all__ = ["ReportEntry", "write_index", "write_report", "write_tree_page"]
