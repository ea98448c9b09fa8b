"""A program of ours that serves requests, as tests start it: its log, its memory, its end."""

import re
import signal
import time


class Served:
    """Classes that extend this one set log (a path) and process."""

    LINE_S = 20  # how long a line of the log may take

    def text(self):
        return self.log.read_text(errors="replace")

    def wait_for_line(self, pattern):
        for _ in range(self.LINE_S * 50):
            found = re.search(pattern, self.text())
            if found:
                return found
            assert self.process.poll() is None, self.text()
            time.sleep(0.02)
        raise AssertionError(f"no line {pattern!r} in:\n{self.text()}")

    def memory_kib(self, what="VmHWM"):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(rf"{what}:\s+(\d+) kB", f.read())[1])

    def end(self, seconds=20):
        """Returns the exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)
