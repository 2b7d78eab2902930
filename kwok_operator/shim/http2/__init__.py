"""HTTP/2 for a server, as RFC 9113 has it, without sockets, clocks or threads.

connection.py turns bytes that a client sent into events, and answers into bytes to send. frames.py
builds and reads frames, headers.py header fields; outgoing.py is the flow control of what we send.
"""
