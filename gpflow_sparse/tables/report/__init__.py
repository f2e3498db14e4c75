"""The page about a fitted estimator."""

from gpflow_sparse.tables.report.report import require_report, write_report

__all__ = ["require_report", "write_report"]
