//! Fuzz targets: each takes any bytes and panics when an invariant does not hold.
//!
//! They run under libFuzzer (`make fuzz`), and over the kept corpora in the tests of this crate.
//! Bytes that are not an input of a target are skipped. No target keeps state that its next run
//! could notice, except the mesh behind the targets that use sockets.

#![forbid(unsafe_code)]

mod connections;
mod grpc;
mod heads;
mod http2_script;
mod input;
mod language_models;
mod mesh;
mod routes;
mod transcoders;
mod wire;

pub use connections::{ingress_http1, ingress_http2, server_http2};
pub use grpc::{frames, headers};
pub use heads::{heads, proxies};
pub use language_models::{llm_answers, llm_requests};
pub use routes::routes;
pub use transcoders::{answers, descriptors, requests};
pub use wire::wire;

/// A target: its name, and the function that runs an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them, by name.
pub const TARGETS: [Target; 14] = [
    ("answers", answers),
    ("descriptors", descriptors),
    ("frames", frames),
    ("headers", headers),
    ("heads", heads),
    ("ingress_http1", ingress_http1),
    ("ingress_http2", ingress_http2),
    ("llm_answers", llm_answers),
    ("llm_requests", llm_requests),
    ("proxies", proxies),
    ("requests", requests),
    ("routes", routes),
    ("server_http2", server_http2),
    ("wire", wire),
];
