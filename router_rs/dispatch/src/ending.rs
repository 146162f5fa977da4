//! How a call ended, as far as the exchange knows.

use router_call::Failure;
use router_core::Outcome;
use router_protocol::grpc::Code;

/// See the module's documentation.
#[derive(Debug)]
pub enum Ending {
    /// The replica's answer was passed on completely.
    Answered,
    /// The caller is gone.
    Cancelled,
    /// The caller still needs an answer.
    Failed(Failure),
}

impl Ending {
    /// For an attempt aborted on our side: a deadline that passes before a replica has sent
    /// anything may be its fault.
    pub(super) fn outcome(&self, has_begun: bool) -> Outcome {
        match self {
            Self::Failed(failure)
                if failure.status.code == Code::DeadlineExceeded && !has_begun =>
            {
                Outcome::Late
            }
            Self::Answered | Self::Cancelled | Self::Failed(_) => Outcome::Cancelled,
        }
    }
}
