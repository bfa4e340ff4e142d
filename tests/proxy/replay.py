"""A server that says its part of a recorded conversation, and writes down what it hears.

    replay.py CONVERSATION HEARD

A line of the conversation is `C` and how many bytes the client will have said by then, or `S` and bytes in hex.
"""

import os
import sys
import threading

conversation, heard = sys.argv[1:]
said = 0
more = threading.Condition()


def listen() -> None:
    global said
    with open(heard, "wb") as file:
        while chunk := os.read(0, 1 << 16):
            file.write(chunk)
            file.flush()
            with more:
                said += len(chunk)
                more.notify()


listener = threading.Thread(target=listen)
listener.start()
with open(conversation) as lines:
    for line in lines:
        who, what = line.split(None, 1)
        if who == "C":
            with more:
                while said < int(what) and more.wait(20):
                    pass
        else:
            view = memoryview(bytes.fromhex(what))
            while view:
                view = view[os.write(1, view) :]
os.close(1)
listener.join()
