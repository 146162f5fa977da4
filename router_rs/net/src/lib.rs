//! Sockets and HTTP/2.

#![forbid(unsafe_code)]

pub mod mesh;
