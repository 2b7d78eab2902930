"""A verdict for people: report.html, summary.md, the trace."""
