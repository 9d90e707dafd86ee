"""A server that answers each request of 64 bytes with a header and a body: two writes, then a read."""

import socket
import sys
import threading


def answer(client):
    if "--nagle" not in sys.argv:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got = b""
    while data := client.recv(65536):
        got += data
        while len(got) >= 64:
            client.sendall(got[:16])
            client.sendall(got[16:64])
            got = got[64:]


listener = socket.create_server(("127.0.0.1", 7900))
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
