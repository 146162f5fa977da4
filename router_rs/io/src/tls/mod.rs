//! TLS settings that can be exchanged while they are used.
//!
//! A connection keeps the settings that it began with; the next one takes the current ones. So a
//! reload drops no call. TLS 1.3 is what both sides prefer, 1.2 stays possible.

mod client;
mod pem;
mod server;
mod verify;

pub use client::{ClientTls, ClientTlsOptions};
pub use pem::{PemPair, TlsError, lifetime_s};
pub use server::{ServerTls, ServerTlsOptions};
