//! The methods a server knows, by path.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use router_protocol::grpc::{Code, Status};
use router_transcode::ServiceRoute;

use super::http_head::PlainHttp;

/// Settings of a method that apply before Python sees the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// The number under which the registrar finds its handler.
    pub index: i32,
    pub is_request_streaming: bool,
    pub is_response_streaming: bool,
    /// The weight of a call at the gate; 0 for idle streams (design decision 11).
    pub weight: u32,
    /// The codecs that it takes, in lower case; `None`: any.
    pub subtypes: Option<Arc<[String]>>,
    /// Replaces the message limits for calls of handles, in both directions.
    pub message_bytes_max: Option<usize>,
    /// Replaces the server's limit for received messages.
    pub receive_bytes_max: Option<usize>,
}

impl Method {
    /// Refuses a codec that the method does not take.
    ///
    /// # Errors
    /// `UNIMPLEMENTED`, naming both sides.
    pub(super) fn check_subtype(&self, path: &str, subtype: &str) -> Result<(), Status> {
        let Some(taken) = &self.subtypes else { return Ok(()) };
        if taken.iter().any(|name| name == subtype) {
            return Ok(());
        }
        let text = format!(
            "the method {path} takes application/grpc+{{{}}}, the client sent \
             application/grpc+{subtype}",
            taken.join(",")
        );
        Err(Status::new(Code::Unimplemented, text))
    }
}

/// A path that nobody registered: Python resolves it, message by message.
const UNREGISTERED: Method = Method {
    index: -1,
    is_request_streaming: true,
    is_response_streaming: true,
    weight: 1,
    subtypes: None,
    message_bytes_max: None,
    receive_bytes_max: None,
};

#[derive(Debug, Default)]
pub(super) struct Methods {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_path: HashMap<Box<str>, Method>,
    /// Plain HTTP requests, whatever their path.
    http: Option<PlainHttp>,
    /// Calls without the token, whatever their path.
    turned_away: Option<i32>,
    /// The next free number.
    count: i32,
}

impl Known {
    fn next_index(&mut self) -> i32 {
        self.count += 1;
        self.count - 1
    }
}

impl Methods {
    /// Registers a path, or replaces its settings; returns its index.
    pub(super) fn register(&self, path: &str, mut method: Method) -> i32 {
        let mut known = self.known.write();
        let before = known.by_path.get(path).map(|known| known.index);
        method.index = before.unwrap_or_else(|| known.next_index());
        let index = method.index;
        known.by_path.insert(path.into(), method);
        index
    }

    /// Like `register`, for plain HTTP.
    pub(super) fn register_http(&self, weight: u32, whole_body_bytes_max: usize) -> i32 {
        let mut known = self.known.write();
        let before = known.http.map(|known| known.index);
        let index = before.unwrap_or_else(|| known.next_index());
        known.http = Some(PlainHttp { index, weight, whole_body_bytes_max });
        index
    }

    /// Like `register`, for calls without the token that the server requires.
    pub(super) fn register_turned_away(&self) -> i32 {
        let mut known = self.known.write();
        let index = known.turned_away.unwrap_or_else(|| known.next_index());
        known.turned_away = Some(index);
        index
    }

    pub(super) fn find(&self, path: &str) -> Method {
        self.known.read().by_path.get(path).cloned().unwrap_or(UNREGISTERED)
    }

    /// The numbers by path. Those of unregistered paths and of plain HTTP have names without a
    /// slash.
    pub(super) fn names(&self) -> Vec<(String, i32)> {
        let known = self.known.read();
        let paths = known.by_path.iter().map(|(path, method)| (path.to_string(), method.index));
        let http = known.http.map(|http| ("http".to_owned(), http.index));
        let unknown = ("unregistered".to_owned(), UNREGISTERED.index);
        paths.chain(http).chain([unknown]).collect()
    }

    /// The services that have methods here, by name.
    pub(super) fn services(&self) -> Vec<ServiceRoute> {
        let known = self.known.read();
        let paths = known.by_path.keys();
        let names = paths.filter_map(|path| path.strip_prefix('/')?.split_once('/'));
        let names: BTreeSet<&str> = names.map(|(service, _)| service).collect();
        let route = |name: &str| ServiceRoute { name: name.to_owned(), methods: None };
        names.into_iter().map(route).collect()
    }

    /// `None`: such calls are not reported.
    pub(super) fn turned_away(&self) -> Option<i32> {
        self.known.read().turned_away
    }

    /// `None`: plain HTTP is not served.
    pub(super) fn http(&self) -> Option<PlainHttp> {
        self.known.read().http
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

    #[test]
    fn plain_http_counts_among_the_methods() {
        let methods = Methods::default();
        assert_eq!(None, methods.http());
        assert_eq!(0, methods.register("/a.B/C", UNREGISTERED));
        assert_eq!(1, methods.register_http(1, 10));
        assert_eq!(2, methods.register("/a.B/D", UNREGISTERED));
        assert_eq!(1, methods.register_http(2, 20));
        let expected = PlainHttp { index: 1, weight: 2, whole_body_bytes_max: 20 };
        assert_eq!(Some(expected), methods.http());
    }

    #[test]
    fn a_refused_codec_is_told_which_ones_are_taken() {
        let taken = ["pickle".to_owned(), "json".to_owned()];
        let method = Method { subtypes: Some(taken.into()), ..UNREGISTERED };
        assert_eq!(Ok(()), method.check_subtype("/x/Y", "json"));
        assert_eq!(Ok(()), UNREGISTERED.check_subtype("/x/Y", "foo"));
        let status = method.check_subtype("/x/Y", "foo").unwrap_err();
        let expected = "the method /x/Y takes application/grpc+{pickle,json}, the client sent \
                        application/grpc+foo";
        assert_eq!((Code::Unimplemented, expected), (status.code, status.message.as_str()));
    }
}
