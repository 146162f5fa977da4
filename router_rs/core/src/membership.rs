//! The replicas of a deployment, as reported by the driver.

/// Identifies a replica. Opaque: the driver maps its own identifiers to numbers, and never gives
/// the number of one replica to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// The distance of a replica; [`Locality`](crate::Locality) says how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// On the router's own node.
    Node,
    /// In the router's zone.
    Zone,
    /// Anywhere.
    Any,
}

/// One replica of a membership snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// The replica.
    pub id: ReplicaId,
    /// Its distance.
    pub tier: Tier,
    /// Calls it may have in flight from this router (`max_ongoing_requests`); `u32::MAX` means no
    /// limit, 0 means that it gets none.
    pub capacity: u32,
}
