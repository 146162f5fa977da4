//! The interface between the callers of a call and its transport: doors and channels are in front
//! of it, transcoding implements it, and the exchange with replicas is behind it.

#![forbid(unsafe_code)]

mod caller;
mod door;
mod failure;
mod refusal;

pub use caller::{Caller, Cancelled, ClientEnd, Piece};
pub use door::Door;
pub use failure::Failure;
pub use refusal::Refusal;
