//! Parsed requests of all APIs.

use std::fmt::Debug;

use crate::{Opened, Resolved};

/// A request of one of the APIs that has been read.
#[derive(Debug)]
pub struct Request(Box<dyn ApiRequest>);

/// The interface of each API's request. A long body is parsed on another thread.
pub(crate) trait ApiRequest: Debug + Send {
    /// The model's name, if the client has said one.
    fn model(&self) -> Option<&str>;

    /// Whether the client wants events.
    fn is_stream(&self) -> bool {
        false
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened;
}

// === impl Request ===

impl Request {
    /// The model's name, if the client has said one.
    pub fn model(&self) -> Option<&str> {
        self.0.model()
    }

    /// Whether the client wants events.
    pub fn is_stream(&self) -> bool {
        self.0.is_stream()
    }

    /// The call that the request becomes.
    pub fn open(self, resolved: Resolved) -> Opened {
        self.0.open(resolved)
    }
}

impl<T: ApiRequest + 'static> From<T> for Request {
    fn from(request: T) -> Self {
        Self(Box::new(request))
    }
}
