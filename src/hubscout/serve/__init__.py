"""What a person looks at, live: a small local page over a folder of runs.

It reads and writes the same run folders as the commands, so killing it loses nothing. Only `hubscout.cli` imports it.
The extra `serve` brings what `application` and `server` need; they are imported when a server is started.
"""

from hubscout.serve.run_index import RunIndex
from hubscout.serve.server import serve

__all__ = ["RunIndex", "serve"]
