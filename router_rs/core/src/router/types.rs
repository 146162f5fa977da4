//! The inputs and outputs of the router.

use crate::cost::Cost;
use crate::membership::{ReplicaId, Tier};
use crate::replica::Load;
use crate::slab::Key;
use crate::time::Nanos;

/// The preference for near replicas over farther ones.
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
    /// The cache entries that the call would like to find, each by its key, which is not 0; of a chain
    /// in its order.
    pub cache_keys: &'a [u64],
    /// Calls of higher priority leave the queue first.
    pub priority: i8,
    /// Who calls: the queue is fair between callers. 0: nobody in particular.
    pub caller: u64,
    /// Instead of the router's own; `None`: that.
    pub locality: Option<Locality>,
    /// The order in which the caller wants replicas tried: the first with room. Those it does not
    /// name come after, as the policy decides.
    pub ranked: &'a [ReplicaId],
    /// What it costs, by its client's word; `None`: as calls like it.
    pub cost: Option<Cost>,
    /// Calls of one method, and of about equal length, are alike.
    pub method: &'a str,
    /// The length of its request, as far as it is known when it is offered.
    pub request_bytes: u64,
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
    /// The replica to send it to.
    pub replica: ReplicaId,
    /// The replica keeps a place for it, under the name by which it was asked.
    pub is_leased: bool,
    /// Since when the call has its place.
    pub sent_at: Nanos,
}

/// The decision about an offered call.
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
    /// No replica has room, and those that wait cost as much as may wait.
    QueueCostFull {
        /// `queue_cost_max`.
        limit: Cost,
        /// The cost of the call.
        cost: Cost,
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
    /// The load that the replica reported with its answer, if any.
    #[inline]
    pub(super) fn load(&self) -> Option<&Load> {
        match self {
            Self::Done { load, .. } | Self::Refused { load } => load.as_ref(),
            Self::ConnectFailed | Self::Failed | Self::Late | Self::Cancelled => None,
        }
    }

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
    /// No replica could be reached for as long as it may wait for that; the router has forgotten it.
    Unreachable {
        /// Who waited.
        waiter: WaiterId,
    },
}

/// The counts, each with its name: what is added here is in every list of them.
macro_rules! router_stats {
    ($(#[$of_all:meta])* counts: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$of_all])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct RouterStats {
            /// The members, and those that left with calls still open; by id.
            pub replicas: Vec<ReplicaStats>,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl RouterStats {
            /// The counts by their names.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

router_stats! {
    /// Counts of one router.
    ///
    /// Totals run from the router's start. Every offered call is in exactly one place:
    /// `offered = completed + refused_by_queue + expired + unreachable + abandoned + in_flight + parked`.
    /// A metric takes a count by its name (`pyserve/observe/metrics/catalogue.py`).
    counts:
    /// Calls offered.
    offered,
    /// Assignments: a call that is sent again counts again.
    sent,
    /// Calls sent and not over.
    in_flight,
    /// Calls waiting now.
    parked,
    /// Those of them that wait for a replica that has their model.
    waiting_for_model,
    /// Those sent for which a replica had kept a place.
    leased,
    /// Those sent for a model to a replica that did not have it, and was not about to.
    model_misses,
    /// Cache entries that calls named and that the replica they were sent to has, or is about to have.
    cache_hits,
    /// Those that it does not have.
    cache_misses,
    /// Cache entries that the router knows of.
    cache_keys,
    /// The memory that they take, in bytes.
    cache_bytes,
    /// Cache entries that the router has forgotten because it may not know of more.
    cache_forgotten,
    /// Calls that ended by `complete`, whatever the outcome.
    completed,
    /// Calls turned away because the queue was full, or too long for their deadlines.
    refused_by_queue,
    /// Calls whose deadline passed before they were sent (again).
    expired,
    /// Calls given up because no replica could be reached.
    unreachable,
    /// Calls whose caller left while they were parked.
    abandoned,
    /// Outcomes `Refused`.
    refusals,
    /// Outcomes `ConnectFailed`.
    connect_failures,
    /// Outcomes `Failed`.
    failed,
    /// Outcomes `Late`.
    late,
    /// Outcomes `Cancelled`.
    cancelled,
    /// Replicas ejected for their failures; repeated ejections count again.
    ejections,
    /// Calls that had started and were sent again.
    retries,
    /// Those that were not, see [`Refusal::Spent`]; they are among the completed.
    retries_refused,
    /// Second places for late calls; each counts as a call offered.
    hedges,
    /// Tickets that were unknown or already used; each one is a defect of the driver.
    stale_tickets,
    /// Waiters abandoned after their release; harmless, when two threads meet.
    stale_waiters,
}

/// Counts of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStats {
    /// The replica.
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
    /// Its last report.
    pub reported: Option<Load>,
}
