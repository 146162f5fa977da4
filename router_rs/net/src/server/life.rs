//! The life of one connection: the server's phases, and its own age.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use router_io::phase::{Phase, Phases};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::connection_state::ConnectionState;
use crate::link::{Command, Mailbox};

pub(super) struct Life {
    state: Rc<ConnectionState>,
    phases: Phases,
    age: Option<Pin<Box<Sleep>>>,
    current: Phase,
}

impl Life {
    pub(super) fn new(state: Rc<ConnectionState>, phase: watch::Receiver<Phase>) -> Self {
        let age = state.server.config.connection_age_max.map(|age| Box::pin(sleep(age)));
        Self { state, phases: Phases::new(phase), age, current: Phase::Serving }
    }

    /// Returns true once: the connection must take no more calls.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> bool {
        let was_serving = self.current == Phase::Serving;
        while let Poll::Ready(phase) = self.phases.poll_next(context) {
            self.enter(phase);
        }
        if self.age.as_mut().is_some_and(|age| age.as_mut().poll(context).is_ready()) {
            self.age = None;
            self.enter(self.current.max(Phase::Draining));
        }
        was_serving && self.current != Phase::Serving
    }

    fn enter(&mut self, phase: Phase) {
        if self.state.info.is_inner && phase < Phase::Stopped {
            return; // it is the client that has to go elsewhere
        }
        if self.current == Phase::Serving {
            self.state.draining.send_replace(true);
            self.state.guest.iter().for_each(|guest| guest.front.drain());
        }
        if phase == Phase::Stopped {
            self.state.guest.iter().for_each(|guest| guest.front.stop());
            for (_, exchange) in &*self.state.calls.borrow() {
                exchange.link().deliver(Command::Shutdown);
            }
        }
        self.current = phase;
    }
}
