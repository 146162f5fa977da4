//! Drives a gRPC or HTTP/1.1 server with a known load and reports what came back, and when.
//!
//! What this crate decides: when a call starts ([`schedule`]), which calls count and with which
//! latency ([`sampling`]), and whether an answer is right ([`framing`], [`call`]).
//! It never generates code from a `.proto`: messages are bytes, so that one binary drives any
//! service. It refuses compression, which the benchmarks do not cover.
//!
//! Two ways to drive:
//! - *closed loop*: a fixed number of calls in flight, the next one starts when one ends;
//! - *open loop*: calls start by a schedule that does not look at the answers, and each latency is
//!   measured from the instant at which the call should have started. A server that stalls is
//!   charged for every call that was due meanwhile, so coordinated omission cannot hide it.
#![forbid(unsafe_code)]

pub mod call;
pub mod connect;
pub mod cpu;
pub mod drive;
pub mod framing;
pub mod http1;
pub mod options;
pub mod report;
pub mod sampling;
pub mod schedule;
