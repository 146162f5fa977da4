//! How a deployment wants its calls routed.

use router_core::RouterConfig;
use router_protocol::grpc::CodeSet;

use crate::outcome;

/// A deployment's settings for its routers; see `docs/reference/routing.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterSettings {
    /// The table gives it the length of the queue and the seed.
    pub config: RouterConfig,
    /// Answers with these codes are retried, if their call may be.
    pub retry_codes: CodeSet,
}

impl Default for RouterSettings {
    fn default() -> Self {
        Self { config: RouterConfig::default(), retry_codes: outcome::PASSING }
    }
}
