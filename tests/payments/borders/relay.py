"""One address for a server that changes, as a proxy or a floating address gives it; and joined connections."""

import socket
import threading


class Relay:
    """Leads to one port of this host, until it is told another."""

    def __init__(self, target_port: int):
        self.target_port = target_port
        self.sockets: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def lead_to(self, target_port: int) -> None:
        """New connections go there, and the old ones are cut."""
        self.target_port = target_port
        old, self.sockets = self.sockets, []
        for end in old:
            shut(end)

    def _serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            self.sockets += join(client, self.target_port)


def join(client: socket.socket, port: int) -> list[socket.socket]:
    """Connect to a port of this host and copy both ways; nobody there: the client is shut out."""
    try:
        server = socket.create_connection(("127.0.0.1", port), 5)
    except OSError:
        shut(client)
        client.close()
        return []
    server.settimeout(None)
    for source, target in ((client, server), (server, client)):
        threading.Thread(target=_copy, args=(source, target), daemon=True).start()
    return [client, server]


def shut(end: socket.socket) -> None:
    """Both directions; whoever reads notices."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Bytes from one to the other until either ends."""
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass
    shut(source)
    shut(target)
