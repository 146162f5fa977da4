//! Where a call may go: anywhere, to one replica, or to a place that was taken before.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use router_protocol::grpc::Status;

use crate::entry::{Admission, DeploymentEntry, TicketGuard};
use crate::limits::Limits;
use crate::refused::Refused;
use crate::wish::Wish;

/// The placement that the caller wants.
#[derive(Clone, Debug, Default)]
pub enum Placement {
    /// The router decides.
    #[default]
    Any,
    /// Only this replica, whatever its load.
    Replica(String),
    /// Only this place.
    Reserved(Arc<Reservation>),
}

/// Reserves a place at a replica as a call with this wish would, waiting if need be.
///
/// # Errors
/// The status that the call would have got.
pub async fn choose(
    entry: &Arc<DeploymentEntry>,
    wish: &Wish<'_>,
    mut limits: Limits<'_>,
) -> Result<Reservation, Status> {
    let placed = match entry.offer(wish) {
        Admission::Send(ticket) => Ok(ticket),
        Admission::Refused(refused) => Err(refused),
        Admission::Parked(mut waiter) => {
            let waited = poll_fn(|cx| match waiter.poll(cx) {
                Poll::Ready(placed) => Poll::Ready(Ok(placed)),
                Poll::Pending => limits.poll(cx).map(Err),
            });
            match waited.await {
                Err(status) if status.is_late() => {
                    drop(waiter);
                    Err(Refused::Expired(entry.crowd()))
                }
                placed => placed?,
            }
        }
    };
    placed.map(Reservation::new).map_err(|refused| {
        entry.tally.refuse(refused);
        refused.status(&entry.application, &entry.deployment)
    })
}

/// A place at a replica. It counts there as a call until it is used, released or dropped.
#[derive(Debug)]
pub struct Reservation {
    replica_id: String,
    node: String,
    ticket: Mutex<Option<TicketGuard>>,
}

impl Reservation {
    pub(crate) fn new(ticket: TicketGuard) -> Self {
        let replica = ticket.target().as_replica();
        let (replica_id, node) = replica.map_or_else(Default::default, |replica| {
            (replica.replica_id.clone(), replica.node.clone())
        });
        Self { replica_id, node, ticket: Mutex::new(Some(ticket)) }
    }

    pub fn replica_id(&self) -> &str {
        &self.replica_id
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Gives the place back, unless a call has taken it.
    pub fn release(&self) {
        let ticket = self.ticket.lock().take();
        drop(ticket);
    }

    /// The place; returned once.
    pub(crate) fn take(&self) -> Option<TicketGuard> {
        self.ticket.lock().take()
    }
}
