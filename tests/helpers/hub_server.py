"""A small server with the part of the Hugging Face hub's HTTP API that fetching a model uses: HEAD and GET."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Hub:
    """State of the server, which tests read and change."""

    url: str = ""  # address of the server
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)  # USER/NAME -> file -> content
    private: set[str] = field(default_factory=set)  # USER/NAME that only requests with a token may read


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve on a free port of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers the client of huggingface_hub."""

        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing."""

        def answer(self, status: int, body: object = None, **headers: str) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path.startswith("/api/models/"):
                # an older client adds a revision
                name = self.path.removeprefix("/api/models/").partition("/revision/")[0]
                known = name in hub.repositories
                return self.answer(200 if known else 404, {"id": name}, X_Error_Code="" if known else "RepoNotFound")
            if "/resolve/" not in self.path:
                return self.answer(200)
            repository, _, revision_and_file = self.path.strip("/").partition("/resolve/")
            name = revision_and_file.partition("/")[2]
            token = self.headers.get("Authorization")
            if repository not in hub.repositories or (repository in hub.private and token is None):
                return self.answer(401 if token is None else 404, X_Error_Code="RepoNotFound")
            files = hub.repositories[repository]
            if name not in files:
                return self.answer(404, X_Error_Code="EntryNotFound")
            content = files[name]
            digest = hashlib.sha256(content).hexdigest()
            return self.answer(200, content, ETag=f'"{digest}"', X_Repo_Commit=digest[:40])

    return Handler
