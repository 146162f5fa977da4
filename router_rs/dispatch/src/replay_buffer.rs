//! Request bytes that are kept until the call is committed, so that a refused call can be sent
//! elsewhere. The bytes are shared with the connection's buffers; only their lifetime costs memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use router_protocol::grpc::PREFIX_BYTES;
use smallvec::SmallVec;

/// Bound of a call that is not one known message (design 7).
const CALL_BYTES_MAX: usize = 1 << 20;

/// Bound of a routing table (design 7).
const TABLE_BYTES_MAX: usize = 64 << 20;

/// The total that all calls of one table keep.
#[derive(Debug, Default)]
pub struct ReplayBudget {
    used: AtomicUsize,
}

impl ReplayBudget {
    fn take(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = used + bytes <= TABLE_BYTES_MAX;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// The bytes of one call.
#[derive(Debug)]
pub struct ReplayBuffer {
    budget: Arc<ReplayBudget>,
    pieces: SmallVec<[Bytes; 1]>,
    bytes: usize,
    message_bytes_max: usize,
    is_committed: bool,
}

impl ReplayBuffer {
    /// `message_bytes_max`: a first message up to this size may be kept beyond the common bound.
    pub fn new(budget: Arc<ReplayBudget>, message_bytes_max: usize) -> Self {
        let pieces = SmallVec::new();
        Self { budget, pieces, bytes: 0, message_bytes_max, is_committed: false }
    }

    /// Keeps nothing: for a second attempt beside one that does.
    pub(super) fn none(&self) -> Self {
        let budget = Arc::clone(&self.budget);
        let mut none = Self::new(budget, 0);
        none.commit();
        none
    }

    /// Keeps a piece, or commits the call if it would be too much.
    pub fn push(&mut self, piece: &Bytes) {
        if self.is_committed {
            return;
        }
        let total = self.bytes + piece.len();
        let fits = total <= self.bound(piece) && self.budget.take(piece.len());
        if fits {
            self.bytes = total;
            self.pieces.push(piece.clone());
        } else {
            self.commit();
        }
    }

    /// Forgets everything: the call can no longer go elsewhere.
    pub fn commit(&mut self) {
        self.is_committed = true;
        self.pieces.clear();
        self.budget.give_back(std::mem::take(&mut self.bytes));
    }

    /// The call may go elsewhere, with [`ReplayBuffer::pieces`].
    pub fn is_whole(&self) -> bool {
        !self.is_committed
    }

    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The common bound, or the first message's size when its prefix announces more.
    fn bound(&self, piece: &Bytes) -> usize {
        let first = self.pieces.first().unwrap_or(piece);
        let message = match first[..] {
            [_, a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]) as usize,
            _ => 0,
        };
        let whole = message.min(self.message_bytes_max).saturating_add(PREFIX_BYTES);
        whole.max(CALL_BYTES_MAX)
    }
}

impl Drop for ReplayBuffer {
    fn drop(&mut self) {
        self.commit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(message_bytes: u32, length: usize) -> Bytes {
        let mut bytes = vec![0; length];
        bytes[1..5].copy_from_slice(&message_bytes.to_be_bytes());
        bytes.into()
    }

    #[test]
    fn a_call_is_committed_past_its_bound_and_gives_its_bytes_back() {
        let budget = Arc::new(ReplayBudget::default());
        let mut replay = ReplayBuffer::new(Arc::clone(&budget), 0);
        replay.push(&piece(9, CALL_BYTES_MAX));
        assert!(replay.is_whole());
        assert_eq!(CALL_BYTES_MAX, budget.used());
        replay.push(&piece(9, 5));
        assert!(!replay.is_whole());
        assert_eq!(0, budget.used());
    }

    #[test]
    fn a_large_first_message_is_kept_up_to_the_deployments_limit() {
        let budget = Arc::new(ReplayBudget::default());
        let size = 3 * CALL_BYTES_MAX;
        let mut allowed = ReplayBuffer::new(Arc::clone(&budget), size);
        allowed.push(&piece(size as u32, size));
        assert!(allowed.is_whole());
        let mut too_large = ReplayBuffer::new(Arc::clone(&budget), size - PREFIX_BYTES - 1);
        too_large.push(&piece(size as u32, size));
        assert!(!too_large.is_whole());
        drop(allowed);
        assert_eq!(0, budget.used());
    }

    #[test]
    fn a_full_table_commits_further_calls() {
        let budget = Arc::new(ReplayBudget::default());
        let calls: Vec<ReplayBuffer> = (0..65)
            .map(|_| {
                let mut replay = ReplayBuffer::new(Arc::clone(&budget), 0);
                replay.push(&piece(9, CALL_BYTES_MAX));
                replay
            })
            .collect();
        assert_eq!(64, calls.iter().filter(|replay| replay.is_whole()).count());
        drop(calls);
        assert_eq!(0, budget.used());
    }
}
