"""HTTP/2 for a server, as RFC 9113 has it, without sockets, clocks or threads.

connection.py takes the bytes that a client sent and gives events; what is to be answered is handed
to it and comes out as bytes. frames.py is the wire, headers.py the header fields, outgoing.py the
flow control of what we send.
"""
