"""A language server, over stdio: started on first use, restarted after a crash, given up after several.

Strategy: one task reads its replies and another the end of its error output. A request waits for its reply within a
deadline; when the server exits, all requests that wait fail at once. A request that a crash interrupted is made
again of a new process. Positions are as the protocol has them: from 0, columns in UTF-16 units.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from . import __version__

CRASHES = 3  # after so many, the server is given up
_LONGEST_LINE = 1 << 24


class Unavailable(Exception):
    """The program isn't installed."""


class GivenUp(Exception):
    """The program crashed too often."""


class TimedOut(Exception):
    """There was no reply within the deadline."""


class Unsupported(Exception):
    """The server doesn't answer such requests."""


class Refused(Exception):
    """The server answered with an error."""


class _Crashed(Exception):
    pass


@dataclass
class _Session:
    """One run of the program."""

    process: asyncio.subprocess.Process
    capabilities: dict[str, Any] = field(default_factory=dict)
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    texts: dict[str, tuple[int, str]] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    sent: int = 0
    is_over: bool = False


class LanguageServer:
    def __init__(self, command: str, root: Path, *, start_deadline: float = 30.0) -> None:
        self.command = shlex.split(command)
        self.root = root
        self.start_deadline = start_deadline
        self.crashes = 0
        self.stderr: deque[str] = deque(maxlen=20)
        self._session: _Session | None = None
        self._sessions: list[_Session] = []
        self._lock = asyncio.Lock()

    @property
    def state(self) -> str:
        if self.crashes >= CRASHES:
            return "given up"
        if self._session is not None:
            return "running"
        return "not started" if self._program() else "not installed"

    def _program(self) -> str | None:
        # Next to the interpreter, for environments that are not activated.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return shutil.which(self.command[0], path=path)

    # -- requests ---------------------------------------------------------------------------------------------

    async def ask(
        self, method: str, params: dict[str, Any], *, needs: str, path: str, text: str, deadline: float
    ) -> Any:
        """Ask about a file with this text. `needs` is the capability that the server must have."""
        while True:
            try:
                session = await self._started()
                if not session.capabilities.get(needs):
                    raise Unsupported(method)
                self._show(session, path, text)
                document = {"textDocument": {"uri": self.uri(path)}} if "item" not in params else {}
                return await self._request(session, method, {**document, **params}, deadline)
            except _Crashed:
                if self.crashes >= CRASHES:
                    raise GivenUp from None

    def uri(self, path: str) -> str:
        return (self.root / path).as_uri()

    def path(self, uri: str) -> Path:
        return Path(url2pathname(unquote(urlsplit(uri).path)))

    def _show(self, session: _Session, path: str, text: str) -> None:
        """Tell the server what a file says now."""
        version, known = session.texts.get(path, (0, None))
        if known == text:
            return
        session.texts[path] = version + 1, text
        document: dict[str, Any] = {"uri": self.uri(path), "version": version + 1}
        if version == 0:
            language = {"py": "python", "go": "go", "js": "javascript"}.get(
                path.rpartition(".")[2], "typescript"
            )
            document |= {"languageId": language, "text": text}
            self._send(session, "textDocument/didOpen", {"textDocument": document})
        else:
            changes = [{"text": text}]
            self._send(
                session, "textDocument/didChange", {"textDocument": document, "contentChanges": changes}
            )

    async def _request(self, session: _Session, method: str, params: dict[str, Any], deadline: float) -> Any:
        session.sent += 1
        number = session.sent
        reply = session.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(session, method, params, number)
            return await asyncio.wait_for(reply, deadline)
        except TimeoutError:
            self._send(session, "$/cancelRequest", {"id": number})
            raise TimedOut(method) from None
        finally:
            session.waiting.pop(number, None)

    def _send(self, session: _Session, method: str, params: Any, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        self._write(session, message)

    def _write(self, session: _Session, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        assert session.process.stdin is not None
        if session.is_over:
            raise _Crashed
        session.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    # -- the process ------------------------------------------------------------------------------------------

    async def _started(self) -> _Session:
        async with self._lock:
            if self._session is not None:
                return self._session
            if self.crashes >= CRASHES:
                raise GivenUp
            program = self._program()
            if program is None:
                raise Unavailable(self.command[0])
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                program,
                *self.command[1:],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=self.root,
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
            session = _Session(process)
            self._sessions.append(session)
            session.tasks = [
                asyncio.create_task(self._read(session)),
                asyncio.create_task(self._listen(session)),
            ]
            try:
                await self._initialize(session)
            except BaseException as error:
                self.crashes += isinstance(error, TimedOut)
                self._end(session)
                raise
            self._session = session
            return session

    async def _initialize(self, session: _Session) -> None:
        supported = {
            "general": {"positionEncodings": ["utf-16"]},
            "textDocument": {
                "hover": {"contentFormat": ["plaintext"]},
                "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
                "callHierarchy": {},
            },
            "workspace": {"configuration": True, "workspaceFolders": True},
        }
        root = self.root.as_uri()
        params = {
            "processId": os.getpid(),
            "clientInfo": {"name": "codemap", "version": __version__},
            "rootUri": root,
            "workspaceFolders": [{"uri": root, "name": self.root.name}],
            "capabilities": supported,
        }
        reply = await self._request(session, "initialize", params, self.start_deadline)
        session.capabilities = reply["capabilities"]
        self._send(session, "initialized", {})

    async def _read(self, session: _Session) -> None:
        """Hand replies to those who wait for them, until the program exits."""
        assert session.process.stdout is not None
        reader = session.process.stdout
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                self._take(session, json.loads(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError, ValueError, StopIteration, asyncio.LimitOverrunError):
            pass
        if not session.is_over:
            self.crashes += 1
            self._end(session)

    def _take(self, session: _Session, message: dict[str, Any]) -> None:
        if "method" not in message:
            reply = session.waiting.get(message.get("id", 0))
            if reply is not None and not reply.done():
                if "error" in message:
                    reply.set_exception(Refused(str(message["error"].get("message", ""))))
                else:
                    reply.set_result(message.get("result"))
        elif "id" in message:
            result = None
            if message["method"] == "workspace/configuration":
                result = [None] * len(message["params"]["items"])
            self._write(session, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _listen(self, session: _Session) -> None:
        assert session.process.stderr is not None
        while line := await session.process.stderr.readline():
            self.stderr.append(line.decode(errors="replace").rstrip())

    def _end(self, session: _Session) -> None:
        """Kill a program, and what it may have started; those who wait for it need not wait longer."""
        if session.is_over:
            return
        session.is_over = True
        if self._session is session:
            self._session = None
        for reply in session.waiting.values():
            if not reply.done():
                reply.set_exception(_Crashed())
        assert session.process.stdin is not None
        session.process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(session.process.pid, signal.SIGKILL)
            else:
                session.process.kill()

    async def close(self) -> None:
        for session in self._sessions:
            self._end(session)
            await asyncio.gather(*session.tasks, session.process.wait())
