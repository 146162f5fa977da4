//! From a call to a replica and back: the routing table, the wait for a place, the exchange.
//!
//! The ingress and the channels of a mesh share this. Which replica a call gets, who waits and for
//! how long is decided by `router_core`; this module owns its lock, its clock and its timer, and
//! makes sure that each ticket is completed once and each waiter is released or abandoned.

mod attempt;
mod blame;
pub(crate) mod caller;
mod collect;
mod door;
mod download;
pub(crate) mod entry;
pub(crate) mod exchange;
mod explain;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod gather;
mod guards;
mod hedge;
mod kept;
mod loads;
mod place;
mod prefixes;
mod ranker;
mod records;
mod repeatable;
pub(crate) mod settings;
mod silence;
mod snapshot;
mod split;
mod stopwatch;
mod table;
mod tally;
mod ticker;
mod upload;
mod watch;

pub use crate::upstream::target::ReplicaLimits;
pub(crate) use collect::{Awaited, COLLECTED_BYTES_MAX};
pub(crate) use door::Door;
pub(crate) use download::strip_mesh_headers;
pub(crate) use explain::is_asked;
pub(crate) use kept::{Kept, KeptBudget};
pub(crate) use place::choose;
pub use place::{Placement, Reservation};
pub use ranker::{Candidate, News, Question, Ranker};
pub use records::{
    AttemptRecord, CallRecord, CallRecords, KeptFor, RecordStats, TraceRecord, unix_now,
};
pub(crate) use settings::Wish;
pub use settings::{CallOptions, RouterSettings};
pub(crate) use snapshot::{Deployment, Found};
pub use snapshot::{DeploymentRoute, ReplicaRoute, ServiceRoute};
pub use split::Share;
pub(crate) use split::Way;
#[cfg(feature = "stopwatch")]
pub use stopwatch::take_decisions;
pub(crate) use table::TableReader;
pub use table::{DeploymentMeasures, DeploymentStats, ReplicaModels, RoutingTable, TableConfig};
pub use tally::Ends;
pub(crate) use tally::{Classes, End, Seen};
pub(crate) use upload::{Upload, poll_room};
