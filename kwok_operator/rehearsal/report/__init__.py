"""Shows a verdict to people: report.html, summary.md, the trace."""
