"""Free network ports."""

import socket


def free_ports(count: int) -> list[int]:
    """Return `count` different free ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
