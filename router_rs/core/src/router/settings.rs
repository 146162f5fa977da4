//! How a router's settings change while it works.

use super::{Release, ReleaseCause, Router, RouterConfig};
use crate::time::Nanos;

impl Router {
    /// Changes how the router behaves and keeps its calls: parked calls wait on, up to the limit
    /// announced when they parked. The seed stays.
    pub fn configure(&mut self, config: RouterConfig, now: Nanos, released: &mut Vec<Release>) {
        self.settle(now, released);
        let rule = |config: &RouterConfig| (config.policy, config.load_bound);
        if rule(&config) != rule(&self.config) {
            self.fleet.set_policy(config.policy.build(config.load_bound), now);
        }
        self.config = config;
        self.release(ReleaseCause::Settings, now, released);
    }

    /// How long calls that are offered from now on wait for a replica that has their model.
    pub fn set_model_wait_max(&mut self, wait: Nanos) {
        self.config.model_wait_max = wait;
    }
}
