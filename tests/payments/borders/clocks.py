"""Clocks that the judge can move: a host that was suspended, a server of a later hour."""

import shutil
import subprocess
from pathlib import Path


class Clocks:
    """The preloaded library (clocks.c), where a C compiler is at hand; the project's own build needs one, too."""

    def __init__(self, folder: Path):
        self.library: Path | None = None
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is not None:
            self.library = folder / "clocks.so"
            source = Path(__file__).with_name("clocks.c")
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self.library, source], check=True)
            self.library.chmod(0o755)

    def ahead(self, seconds: int) -> dict[str, str]:
        """The environment of a process whose wall clock is ahead."""
        if seconds == 0:
            return {}
        return {"LD_PRELOAD": str(self.library), "JUDGE_REALTIME_AHEAD": str(seconds)}

    def suspendable(self, file: Path) -> dict[str, str]:
        """The environment of a process whose monotonic clock is behind by the nanoseconds in the file."""
        file.write_text("0")
        return {"LD_PRELOAD": str(self.library), "JUDGE_MONOTONIC_BEHIND": str(file)}
