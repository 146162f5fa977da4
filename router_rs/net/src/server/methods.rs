//! The methods a server knows, by path.

use std::collections::HashMap;

use parking_lot::RwLock;

/// What the server has to know of a method before Python sees the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The number under which the registrar finds its handler.
    pub index: i32,
    pub is_request_streaming: bool,
    pub is_response_streaming: bool,
    /// What a call counts at the gate; 0 for idle streams (design decision 11).
    pub weight: u32,
}

/// A path that nobody registered: Python resolves it, message by message.
const UNREGISTERED: Method =
    Method { index: -1, is_request_streaming: true, is_response_streaming: true, weight: 1 };

#[derive(Debug, Default)]
pub(super) struct Methods {
    by_path: RwLock<HashMap<Box<str>, Method>>,
}

impl Methods {
    /// Makes a path known, or replaces what is known of it; returns its index.
    pub(super) fn register(&self, path: &str, mut method: Method) -> i32 {
        let mut by_path = self.by_path.write();
        method.index = by_path.get(path).map_or(by_path.len() as i32, |known| known.index);
        by_path.insert(path.into(), method);
        method.index
    }

    pub(super) fn find(&self, path: &str) -> Method {
        self.by_path.read().get(path).copied().unwrap_or(UNREGISTERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registering_again_keeps_the_index() {
        let methods = Methods::default();
        let unary = Method { is_request_streaming: false, ..UNREGISTERED };
        assert_eq!(0, methods.register("/a.B/C", unary));
        assert_eq!(1, methods.register("/a.B/D", UNREGISTERED));
        assert_eq!(0, methods.register("/a.B/C", UNREGISTERED));
        assert!(methods.find("/a.B/C").is_request_streaming);
        assert_eq!(-1, methods.find("/a.B/E").index);
    }
}
