//! What goes into the router and what comes out.

use super::ejection::EjectionConfig;
use super::retries::RetryConfig;
use crate::policy::PolicyKind;
use crate::replica::{Load, ReplicaId, Tier};
use crate::slab::Key;
use crate::time::Nanos;

/// How a router behaves. The defaults are those of the deployment options (`docs/reference`).
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Calls that may be parked at once; `u32::MAX` means any number, 0 that none waits.
    pub queue_len_max: u32,
    /// After this many refusals in a row a call parks instead of trying the next replica.
    pub refusals_max: u8,
    /// How long a replica is left alone after its first refusal.
    pub backoff_initial: Nanos,
    /// How much longer after each further one; at least 1.
    pub backoff_multiplier: f64,
    /// The longest time a replica is left alone.
    pub backoff_max: Nanos,
    /// How long a call waits for a replica that has its model while others have room.
    pub model_wait_max: Nanos,
    /// How long a replica that was sent a call counts as having the call's model without saying so.
    pub promise_max: Nanos,
    /// Which replica gets a call.
    pub policy: PolicyKind,
    /// Of [`PolicyKind::ConsistentHash`]: how many times the mean of the calls in flight a replica
    /// may have of late; above 1.
    pub load_bound: f64,
    /// Which near replicas come first.
    pub locality: Locality,
    /// How long a new replica takes to get its full share; 0: it has it at once.
    pub slow_start: Nanos,
    /// Whether, and how often, calls that started are sent again.
    pub retries: RetryConfig,
    /// Whether slow idempotent calls are sent to a second replica as well.
    pub hedging: bool,
    /// When a replica that fails calls is left out.
    pub ejection: EjectionConfig,
    /// Every random choice follows from it.
    pub seed: u64,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            queue_len_max: 10_000,
            refusals_max: 3,
            backoff_initial: Nanos::from_millis(25),
            backoff_multiplier: 2.0,
            backoff_max: Nanos::from_millis(500),
            model_wait_max: Nanos::from_secs(1),
            promise_max: Nanos::from_secs(10),
            policy: PolicyKind::Predicted,
            load_bound: 1.25,
            locality: Locality::default(),
            slow_start: Nanos::ZERO,
            retries: RetryConfig::default(),
            hedging: false,
            ejection: EjectionConfig::default(),
            seed: 0,
        }
    }
}

/// Which near replicas come before farther ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// Those on the router's node before all others.
    pub prefer_node: bool,
    /// Those in the router's zone before farther ones.
    pub prefer_zone: bool,
}

impl Locality {
    /// Replicas of the smallest distance come first.
    #[inline]
    pub(crate) fn distance(self, tier: Tier) -> u8 {
        match tier {
            Tier::Node if self.prefer_node => 0,
            Tier::Node | Tier::Zone if self.prefer_zone => 1,
            Tier::Node | Tier::Zone | Tier::Any => 2,
        }
    }
}

/// One call that wants a replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// When the call must be answered; `None` waits for as long as its caller does.
    pub deadline: Option<Nanos>,
    /// Which model the call needs; empty: it does not say.
    pub model: &'a str,
    /// Calls of equal sessions belong together; empty: it belongs to none.
    pub session: &'a str,
    /// Calls of higher priority leave the queue first.
    pub priority: i8,
    /// Who calls: the queue is fair between callers. 0: nobody in particular.
    pub caller: u64,
    /// Instead of the router's own; `None`: that.
    pub locality: Option<Locality>,
    /// The order in which the caller wants replicas tried: the first with room. Those it does not
    /// name come after, as the policy decides.
    pub ranked: &'a [ReplicaId],
}

/// Names a call that was sent, from its assignment to `complete` or `reoffer`, exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) Key);

/// Names a parked call, until its release or `abandon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub(super) Key);

/// Send the call to this replica, and say how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Under which name to report the end.
    pub ticket: Ticket,
    /// Where to send it.
    pub replica: ReplicaId,
    /// The replica keeps a place for it, under the name by which it was asked.
    pub is_leased: bool,
    /// Since when the call has its place.
    pub sent_at: Nanos,
}

/// What becomes of an offered call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send it.
    Send(Assignment),
    /// Keep it: a [`Release`] will name it.
    Parked(WaiterId),
    /// Answer it now; the router has forgotten it.
    Refused(Refusal),
}

/// Why the router does not take a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No replica has room, and as many calls wait as may.
    QueueFull {
        /// `queue_len_max`.
        limit: u32,
    },
    /// Its deadline has passed.
    Expired,
    /// So many calls wait before it that it would not be answered before its deadline.
    TooLate {
        /// When it would be sent, from now.
        wait: Nanos,
        /// When its deadline passes, from now.
        left: Nanos,
    },
    /// It started, and may not be sent again: its attempts or the budget are spent.
    Spent,
}

/// How a call that was sent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The replica answered, whatever the status. Ends the replica's backoff.
    Done {
        /// From the trailer.
        load: Option<Load>,
        /// The status blames the replica, not the request.
        is_failure: bool,
        /// When the first message came; `None`: with the end, as for unary calls.
        first_message_at: Option<Nanos>,
    },
    /// The replica's gate kept it out: the call did not start.
    Refused {
        /// From the refusal.
        load: Option<Load>,
    },
    /// No connection: the call did not start.
    ConnectFailed,
    /// The replica or the connection broke off; the call may have run.
    Failed,
    /// The call's deadline passed while the replica had it.
    Late,
    /// The caller went away.
    Cancelled,
}

impl Outcome {
    /// A good answer of one message.
    pub const fn done(load: Option<Load>) -> Self {
        Self::Done { load, is_failure: false, first_message_at: None }
    }
}

/// The end of a call's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Send it. If its caller is gone by now, complete the ticket as [`Outcome::Cancelled`].
    Send {
        /// Who waited.
        waiter: WaiterId,
        /// Where it goes.
        assignment: Assignment,
    },
    /// Its deadline has passed; the router has forgotten it.
    Expired {
        /// Who waited.
        waiter: WaiterId,
    },
}

/// Counts of one router.
///
/// Totals run from the router's start. Every offered call is in exactly one place:
/// `offered = completed + refused_by_queue + expired + abandoned + in_flight + parked`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// The members, and those that left with calls still open; by id.
    pub replicas: Vec<ReplicaStats>,
    /// Calls sent and not over.
    pub in_flight: u64,
    /// Calls waiting now.
    pub parked: u64,
    /// Those of them that wait for a replica that has their model.
    pub faithful: u64,
    /// Calls offered.
    pub offered: u64,
    /// Assignments: a call that is sent again counts again.
    pub sent: u64,
    /// Those of them for which a replica had kept a place.
    pub leased: u64,
    /// Calls that ended by `complete`, whatever the outcome.
    pub completed: u64,
    /// Calls turned away because the queue was full, or too long for their deadlines.
    pub refused_by_queue: u64,
    /// Calls whose deadline passed before they were sent (again).
    pub expired: u64,
    /// Calls whose caller left while they were parked.
    pub abandoned: u64,
    /// Outcomes `Refused`.
    pub refusals: u64,
    /// Outcomes `ConnectFailed`.
    pub connect_failures: u64,
    /// Outcomes `Failed`.
    pub failed: u64,
    /// Outcomes `Late`.
    pub late: u64,
    /// Outcomes `Cancelled`.
    pub cancelled: u64,
    /// Replicas left out for their failures, each time anew.
    pub ejections: u64,
    /// Calls that had started and were sent again.
    pub retries: u64,
    /// Those that were not, see [`Refusal::Spent`]; they are among the completed.
    pub retries_refused: u64,
    /// Second places for late calls; each counts as a call offered.
    pub hedges: u64,
    /// Tickets that were unknown or already used; each one is a defect of the driver.
    pub stale_tickets: u64,
    /// Waiters abandoned after their release; harmless, when two threads meet.
    pub stale_waiters: u64,
}

/// Counts of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStats {
    /// Which replica.
    pub id: ReplicaId,
    /// How far away it is.
    pub tier: Tier,
    /// Calls of this router there.
    pub in_flight: u32,
    /// Calls this router may have there.
    pub capacity: u32,
    /// Models it has, by its own word or by the calls that were sent there.
    pub models: u32,
    /// In the last snapshot; otherwise it only waits for its last calls.
    pub is_member: bool,
    /// Until when it gets no new call.
    pub backoff_until: Option<Nanos>,
    /// Until when it is left out for its failures.
    pub ejected_until: Option<Nanos>,
    /// It gives no sign of life, and gets no new call.
    pub is_silent: bool,
    /// What it last said about itself.
    pub reported: Option<Load>,
}
