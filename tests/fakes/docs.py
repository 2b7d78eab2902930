"""Files that a page of the docs has whole: code blocks that begin with `# NAME`."""

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
_FILE: Final = re.compile(r"^```\w*\n# (\S+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(page: str) -> dict[str, str]:
    """Their texts by their names."""
    return dict(_FILE.findall((DOCS / page).read_text(encoding="utf-8")))
