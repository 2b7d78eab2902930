"""HTTP/2 for a server, by RFC 9113, without sockets, clocks or threads.

connection.py turns bytes from a client into events, and answers into bytes to send. frames.py
builds and reads frames, headers.py does so with header fields. outgoing.py applies flow control to
what the server sends.
"""
