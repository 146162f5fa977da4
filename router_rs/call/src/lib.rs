//! The seam between whoever a call is for and what carries it: doors and channels stand before it,
//! transcoding on it, the exchange with replicas behind it.

#![forbid(unsafe_code)]

mod caller;
mod door;
mod failure;

pub use caller::{Caller, ClientEnd, Gone, Piece};
pub use door::Door;
pub use failure::Failure;
