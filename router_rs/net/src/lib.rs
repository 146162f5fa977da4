//! Sockets and HTTP/2.
