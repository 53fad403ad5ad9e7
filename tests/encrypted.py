"""TLS before a server that was built without it, as the embedded PostgreSQL and Valkey are."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

#: redis-py's own limits are 5 s each: a busy machine may take longer.
SLOWLY = {"socket_timeout": 120, "socket_connect_timeout": 120}
_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"  # how a client of PostgreSQL asks for TLS


@contextmanager
def encrypted(certificate: Path, socket: str, *, postgres: bool = False) -> Iterator[int]:
    """A port of this machine where TLS leads to the server at a Unix socket, and nothing else leads
    anywhere.

    `certificate`: the folder of server.pem and server.key. `postgres`: TLS begins as that protocol
    has it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate / "server.pem", certificate / "server.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if postgres:
                if await reader.readexactly(8) != _SSL_REQUEST:
                    writer.close()
                    return
                writer.write(b"S")
                await writer.drain()
                await writer.start_tls(context)
            inward, outward = await asyncio.open_unix_connection(socket)
            await asyncio.gather(_carry(reader, outward), _carry(inward, writer))

    loop = asyncio.new_event_loop()
    begun: Future[int] = Future()

    async def run() -> None:
        at_once = None if postgres else context
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=at_once)
        begun.set_result(server.sockets[0].getsockname()[1])
        async with server:
            await server.serve_forever()

    def work() -> None:
        loop.set_exception_handler(lambda *_: None)  # handshakes that tests have fail
        running = loop.create_task(run())
        stop.append(lambda: loop.call_soon_threadsafe(running.cancel))
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(running)
        for left in asyncio.all_tasks(loop):
            left.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    stop: list[Callable[[], object]] = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    port = begun.result(60)
    try:
        yield port
    finally:
        stop[0]()
        thread.join(20)


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await source.read(65_536):
            target.write(some)
            await target.drain()
    with suppress(OSError):
        target.close()
