//! The replicas of a deployment, as reported by the driver.

/// Names a replica. Opaque: the driver interns whatever it knows the replica by, and never gives
/// the number of one replica to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// How far away a replica is; [`Locality`](crate::Locality) says what follows.
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
    /// How far away it is.
    pub tier: Tier,
    /// Calls it may have in flight from this router (`max_ongoing_requests`); `u32::MAX` means
    /// no limit, 0 means that nothing is sent there.
    pub capacity: u32,
}
