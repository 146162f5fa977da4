//! The life of one connection: the server's phases, its own age, and its time without calls.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use router_io::phase::{Phase, Phases};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::connection_state::ConnectionState;
use crate::link::{Command, Mailbox};

pub(super) struct Life {
    state: Rc<ConnectionState>,
    phases: Phases,
    /// Until the connection takes no more calls, then until those that are left must end.
    age: Option<Pin<Box<Sleep>>>,
    grace: Option<Duration>,
    is_old: bool,
    idle_max: Option<Duration>,
    /// While it has no calls.
    idle: Option<Pin<Box<Sleep>>>,
    current: Phase,
}

impl Life {
    pub(super) fn new(state: Rc<ConnectionState>, phase: watch::Receiver<Phase>) -> Self {
        let config = &state.server.config;
        let age = config.connection_age_max.map(|age| Box::pin(sleep(age)));
        let (grace, idle_max) = (config.connection_grace, config.connection_idle_max);
        // It is the client that has to go elsewhere, not the door that forwards its calls.
        let (age, idle_max) = if state.info.is_inner { (None, None) } else { (age, idle_max) };
        let phases = Phases::new(phase);
        Self {
            state,
            phases,
            age,
            grace,
            is_old: false,
            idle_max,
            idle: None,
            current: Phase::Serving,
        }
    }

    /// Returns true once: the connection must take no more calls.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> bool {
        let was_serving = self.current == Phase::Serving;
        while let Poll::Ready(phase) = self.phases.poll_next(context) {
            self.enter(phase);
        }
        while self.age.as_mut().is_some_and(|age| age.as_mut().poll(context).is_ready()) {
            let grace = self.grace.take();
            let next = if self.is_old { Phase::Stopped } else { Phase::Draining };
            self.is_old = true;
            self.age = grace.map(|grace| Box::pin(sleep(grace)));
            self.enter(self.current.max(next));
        }
        was_serving && self.current != Phase::Serving
    }

    /// Returns true once: the connection has had no call for too long, and must take no more.
    pub(super) fn poll_idle(&mut self, has_calls: bool, context: &mut Context<'_>) -> bool {
        let Some(idle_max) = self.idle_max else { return false };
        if has_calls || self.current != Phase::Serving {
            self.idle = None;
            return false;
        }
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(idle_max)));
        let is_over = idle.as_mut().poll(context).is_ready();
        if is_over {
            self.enter(Phase::Draining);
        }
        is_over
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
            for (_, served_call) in &*self.state.calls.borrow() {
                served_call.link().deliver(Command::Shutdown);
            }
        }
        self.current = phase;
    }
}
