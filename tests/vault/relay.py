"""A relay before a server: it speaks TLS, which the server of the wheel cannot, and it can lose a reply."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Relay:
    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self._target = port
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # The reply to the first request that has these bytes in it is lost, with the connection.
        self.lose_reply_to: bytes | None = None
        self.lost = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        # Closing alone would not wake the thread that waits for callers.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, work: object, *values: object) -> None:
        thread = threading.Thread(target=work, args=values, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, caller: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            caller,
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            inside = self._context.wrap_socket(caller, server_side=True) if self._context else caller
            with inside:
                # A request and its reply take turns, so one thread is enough; neither is larger than a read.
                while request := inside.recv(1 << 16):
                    server.sendall(request)
                    reply = server.recv(1 << 16)
                    if self.lose_reply_to and self.lose_reply_to in request:
                        self.lose_reply_to = None
                        self.lost += 1
                        return
                    inside.sendall(reply)


@contextlib.contextmanager
def running_relay(port: int, context: ssl.SSLContext | None = None) -> Iterator[Relay]:
    relay = Relay(port, context)
    try:
        yield relay
    finally:
        relay.close()


def certificate(folder: Path, address: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate for that address that vouches for itself, and what a server needs to show it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / f"{address}.crt", folder / f"{address}.key"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    return certificate_file, context
