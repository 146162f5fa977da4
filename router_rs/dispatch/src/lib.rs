//! From a call to a replica and back: the routing table, the wait for a place, the exchange.
//!
//! The ingress and the channels of a mesh share this crate. `router_core` decides which replica a
//! call gets, which calls wait, and for how long. This crate owns its lock, its clock and its
//! timer, and makes sure that each ticket is completed once and each waiter is released or
//! abandoned.

#![forbid(unsafe_code)]

mod clock;
mod ending;
mod entry;
mod exchange;
mod explain;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod head;
mod limits;
mod outcome;
mod ranker;
mod ranking;
mod records;
mod refused;
mod replay_buffer;
mod stopwatch;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod wish;

pub use ending::Ending;
pub use entry::{Candidate, ReplicaModels};
pub use exchange::collect::{Awaited, COLLECTED_BYTES_MAX};
pub use exchange::download::strip_mesh_headers;
pub use exchange::place::{Placement, Reservation, choose};
pub use exchange::upload::Upload;
pub use exchange::{Exchange, coalesce};
pub use explain::is_asked;
pub use head::Head;
pub use limits::{Limits, Stop, deadline_exceeded};
pub use ranker::{News, Question, Ranker};
pub use records::{
    AttemptRecord, CallRecord, CallRecords, KeptFor, RecordStats, TraceRecord, unix_now,
};
pub use replay_buffer::{ReplayBudget, ReplayBuffer};
pub use router_upstream::target::{ARENA_BYTES_DEFAULT, ReplicaLimits};
#[cfg(feature = "stopwatch")]
pub use stopwatch::take_decisions;
pub use table::llm::{Chosen, LlmRoute, Models, NoModel, Served};
pub use table::settings::RouterSettings;
pub use table::snapshot::{Deployment, DeploymentRoute, Found, ReplicaRoute, Snapshot, Way};
pub use table::split::Share;
pub use table::view::{Added, check_prefix};
pub use table::{DeploymentMeasures, DeploymentStats, RoutingTable, TableConfig, TableReader};
pub use tally::{Classes, End, Ends, Seen};
pub use wish::{CallOptions, Wish};
