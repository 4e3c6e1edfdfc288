"""A small server with the part of the Hugging Face hub's HTTP API that pushing and fetching a model uses.

Tests point the real client to it (HF_ENDPOINT). The client creates a repository, validates the card, asks how to upload
each file, sends large files by git LFS, commits, and downloads by HEAD and GET.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKENS = {"hf_writer": "me", "hf_reader": ""}  # token -> the user whose repositories it may write
LICENCES = ("apache-2.0", "mit", "other")


@dataclass
class Hub:
    """State of the server, which tests read and change."""

    url: str = ""  # address of the server
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)  # USER/NAME -> file -> content
    private: dict[str, bool] = field(default_factory=dict)  # USER/NAME -> True if only users with a token may read it
    objects: dict[str, bytes] = field(default_factory=dict)  # SHA-256 -> content sent by LFS
    requests: list[str] = field(default_factory=list)  # method and path of each request
    broken: bool = False  # answer commits with an internal error


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

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def user(self) -> str | None:
            """Return the user whose token was sent: "" for a token that may only read, None without a valid token."""
            return TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            if self.path.startswith("/api/models/"):
                # an older client adds a revision
                name = self.path.removeprefix("/api/models/").partition("/revision/")[0]
                known = name in hub.repositories
                return self.answer(200 if known else 404, {"id": name}, X_Error_Code="" if known else "RepoNotFound")
            if "/resolve/" not in self.path:
                return self.answer(200)
            repository, _, revision_and_file = self.path.strip("/").partition("/resolve/")
            name = revision_and_file.partition("/")[2]
            if repository not in hub.repositories or (hub.private.get(repository) and self.user() is None):
                return self.answer(401 if self.user() is None else 404, X_Error_Code="RepoNotFound")
            files = hub.repositories[repository]
            if name not in files:
                return self.answer(404, X_Error_Code="EntryNotFound")
            content = files[name]
            digest = hashlib.sha256(content).hexdigest()
            return self.answer(200, content, ETag=f'"{digest}"', X_Repo_Commit=_commit(files))

        def do_PUT(self) -> None:
            content = self.body()
            hub.requests.append(f"PUT {self.path}")
            oid = self.path.rpartition("/")[2]
            if hashlib.sha256(content).hexdigest() != oid:
                return self.answer(400)
            hub.objects[oid] = content
            return self.answer(200)

        def do_POST(self) -> None:
            content = self.body()
            hub.requests.append(f"POST {self.path}")
            if self.path == "/api/validate-yaml":
                return self.validate(json.loads(content)["content"])
            if self.user() is None:
                return self.answer(401, {"error": "Invalid username or password."})
            if self.path == "/api/repos/create":
                return self.create(json.loads(content))
            repository = self.path.removeprefix("/api/models/").lstrip("/")
            repository = "/".join(repository.split("/")[:2]).removesuffix(".git")
            if repository.partition("/")[0] != self.user():
                return self.answer(403, {"error": "Forbidden"})
            if "/preupload/" in self.path:
                files = json.loads(content)["files"]
                modes = [("lfs" if f["path"].endswith(".safetensors") else "regular") for f in files]
                chosen = [{"path": f["path"], "uploadMode": mode} for f, mode in zip(files, modes, strict=True)]
                return self.answer(200, {"files": [{**one, "shouldIgnore": False} for one in chosen]})
            if self.path.endswith("/info/lfs/objects/batch"):
                wanted = json.loads(content)["objects"]
                upload = [{**o, "actions": {"upload": {"href": f"{hub.url}/lfs/{o['oid']}"}}} for o in wanted]
                return self.answer(200, {"transfer": "basic", "objects": upload})
            return self.commit(repository, content)

        def validate(self, card: str) -> None:
            licence = card.split("license: ", 1)[1].split("\n", 1)[0]
            if licence in LICENCES:
                return self.answer(200, {"errors": [], "warnings": []})
            message = f'"license" must be one of {", ".join(LICENCES)}'
            if self.headers.get("Accept") == "text/plain":
                return self.answer(400, message.encode())
            wrong = [{"message": message}]
            return self.answer(400, {"error": "Invalid metadata", "errors": wrong, "warnings": []})

        def create(self, wanted: dict[str, Any]) -> None:
            repository = f"{wanted.get('organization') or self.user()}/{wanted['name']}"
            if repository.partition("/")[0] != self.user():
                return self.answer(403, {"error": "You don't have the rights to create a model under this namespace"})
            url = {"url": f"{hub.url}/{repository}", "name": repository, "id": repository}
            if repository in hub.repositories:
                return self.answer(409, {"error": "You already created this model repo", **url})
            hub.repositories[repository] = {}
            hub.private[repository] = bool(wanted.get("private") or wanted.get("visibility") == "private")
            return self.answer(200, url)

        def commit(self, repository: str, content: bytes) -> None:
            if hub.broken:
                return self.answer(500, {"error": "Internal Error"})
            for line in map(json.loads, content.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.repositories[repository][value["path"]] = base64.b64decode(value["content"])
                if line["key"] == "lfsFile":
                    hub.repositories[repository][value["path"]] = hub.objects[value["oid"]]
            oid = _commit(hub.repositories[repository])
            url = f"{hub.url}/{repository}/commit/{oid}"
            return self.answer(200, {"success": True, "commitOid": oid, "commitUrl": url})

    return Handler


def _commit(files: dict[str, bytes]) -> str:
    return hashlib.sha1(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()
