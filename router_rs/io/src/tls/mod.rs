//! TLS settings that can be replaced while they are used.
//!
//! A connection keeps its initial settings; the next one uses the current ones. So a reload drops
//! no call. Both sides prefer TLS 1.3; 1.2 stays possible.

mod client;
mod pem;
mod server;
mod verify;

pub use client::{ClientTls, ClientTlsOptions};
pub use pem::{PemPair, TlsError, lifetime_s};
pub use server::{ServerTls, ServerTlsOptions};
