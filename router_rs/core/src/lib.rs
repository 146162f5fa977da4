//! Decisions of the router: which replica gets a call, which calls wait, when they stop waiting.
//!
//! Everything here is a pure state machine. The caller passes `now`, the seed is part of the
//! configuration, and results come back as values. The crate refuses to do I/O, to read a clock,
//! to draw ambient randomness, to know HTTP or gRPC, and to hold a lock: `router_dispatch` owns one
//! [`Router`] per deployment behind a short mutex, the server of `router_net` one [`Gate`].
//!
//! | module | decides |
//! | --- | --- |
//! | `router` | send, park or refuse; what a completion, a snapshot or the time releases |
//! | `router::affinity` | which replicas come first for a call that names a model |
//! | `router::caching` | which replica comes first for a call that names cache entries |
//! | `cache_log` | what a replica reports of its cache, and to whom |
//! | `ejection` | which replicas are left out because they fail, and how they come back |
//! | `policy` | which of the replicas with room gets the call |
//! | `exclusive` | whether replicas work on one call at a time, so that calls are bound late |
//! | `speed` | how fast replicas are beside each other that work on one call at a time |
//! | `learnt` | how long a replica is expected to take |
//! | `cost`, `outstanding` | what calls cost, and which replica has the least to do by that |
//! | `queue` | who of the parked calls is next, and who is late |
//! | `backoff` | how long a replica that refused is left alone |
//! | `adviser` | whether a policy outside, which may hang, is asked |
//! | `gate` | whether a replica admits a call |
//! | `access` | whether a caller may make a request at all |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod adviser;
mod backoff;
mod batch;
mod cache_log;
mod callers;
mod cost;
mod demand;
mod ejection;
mod exclusive;
mod gate;
mod heap;
mod histogram;
mod learnt;
mod membership;
mod outstanding;
mod policy;
mod queue;
mod replica;
mod rng;
mod router;
mod rush;
mod slab;
mod slowest;
mod speed;
mod time;
mod withheld;

pub use access::{
    AccessRequest, AccessRule, NameError, NamePattern, PathError, PathPattern,
    Policy as AccessPolicy, PolicyError, Reach, Ruling, TokenHash, is_same_hash,
};
pub use adviser::{Adviser, Asked, Heard};
pub use batch::BatchLoad;
pub use cache_log::{CacheBatch, CacheLog, CacheReader};
pub use cost::{Cost, CostChoice, CostLoad};
pub use ejection::EjectionConfig;
pub use gate::{Admission, AskerId, Full, Gate, LEASE_TIME, Lease};
pub use histogram::Histogram;
pub use membership::{ReplicaId, ReplicaSpec, Tier};
pub use policy::{
    Candidate, Candidates, ConsistentHash, LateBinding, Least, P2c, Policy, PolicyKind, Predicted,
    RoundRobin,
};
pub use replica::Load;
pub use rng::{SplitMix64, cache_key};
pub use router::{
    ASKED_MAX, Assignment, CacheChange, Decision, Explanation, Fate, LeaseRequest, Locality,
    Measures, NotSet, Offer, Out, Outcome, Refusal, Release, ReleaseCause, ReplicaMeasures,
    ReplicaStats, ReplicaView, RetryConfig, Router, RouterConfig, RouterStats, Ticket, Told,
    WaiterId,
};
pub use slowest::Slowest;
pub use time::Nanos;
