//! The methods and routes of a deployment that may be called again after a call of them has
//! started.

use std::collections::HashSet;

use http::Method;

/// Parsed from the announcements of replicas: paths of gRPC methods, routes of plain HTTP (`POST
/// /v1/items/{}`, where `{}` is any segment and `{*}`, at the end, any rest), and `*` for all plain
/// HTTP, and `* unstarted` for all plain HTTP until the replica says that work on the request has
/// begun.
#[derive(Debug, Default)]
pub struct Repeatable {
    methods: HashSet<Box<str>>,
    routes: Vec<Route>,
    has_all_http: bool,
    tells_starts: bool,
}

#[derive(Debug)]
struct Route {
    verb: Box<str>,
    segments: Box<[Segment]>,
}

#[derive(Debug)]
enum Segment {
    Text(Box<str>),
    Any,
    Rest,
}

impl Repeatable {
    pub fn new(announced: impl IntoIterator<Item = String>) -> Self {
        let mut found = Self::default();
        for entry in announced {
            if entry == "*" {
                found.has_all_http = true;
            } else if entry == "* unstarted" {
                found.tells_starts = true;
            } else if let Some((verb, path)) = entry.split_once(' ') {
                let segments = path.trim_start_matches('/').split('/').map(Segment::of).collect();
                found.routes.push(Route { verb: verb.into(), segments });
            } else {
                found.methods.insert(entry.into());
            }
        }
        found
    }

    /// Whether the gRPC method at a path is repeatable.
    pub fn has_method(&self, path: &str) -> bool {
        self.methods.contains(path)
    }

    /// Whether a plain HTTP request is repeatable until work on it begins, which its replica tells.
    pub fn tells_starts(&self) -> bool {
        self.tells_starts
    }

    /// Whether a plain HTTP request is repeatable: by its method (RFC 9110, 9.2.2), or because its
    /// handler is marked. `path` is relative to the application's prefix.
    pub fn has_request(&self, verb: &Method, path: &str) -> bool {
        verb.is_idempotent()
            || self.has_all_http
            || self.routes.iter().any(|route| *route.verb == *verb.as_str() && route.fits(path))
    }
}

impl Route {
    fn fits(&self, path: &str) -> bool {
        let mut parts = path.trim_start_matches('/').split('/');
        for segment in &self.segments {
            let fits = match (segment, parts.next()) {
                (Segment::Rest, Some(_)) => return true,
                (Segment::Text(text), Some(part)) => **text == *part,
                (Segment::Any, Some(part)) => !part.is_empty(),
                (_, None) => false,
            };
            if !fits {
                return false;
            }
        }
        parts.next().is_none()
    }
}

impl Segment {
    fn of(text: &str) -> Self {
        match text {
            "{}" => Self::Any,
            "{*}" => Self::Rest,
            _ => Self::Text(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeatable(announced: &[&str]) -> Repeatable {
        Repeatable::new(announced.iter().map(|&entry| entry.to_owned()))
    }

    #[test]
    fn methods_are_known_by_their_paths() {
        let found = repeatable(&["/a.B/C", "POST /x"]);
        assert!(found.has_method("/a.B/C"));
        assert!(!found.has_method("/a.B/D") && !found.has_method("POST /x"));
    }

    #[test]
    fn verbs_say_it_for_themselves() {
        let found = Repeatable::default();
        assert!(found.has_request(&Method::GET, "/x") && found.has_request(&Method::PUT, "/x"));
        assert!(!found.has_request(&Method::POST, "/x"));
    }

    #[test]
    fn routes_fit_by_whole_segments() {
        let found = repeatable(&["POST /v1/chat", "POST /items/{}/run", "POST /files/{*}"]);
        for (path, expected) in [
            ("/v1/chat", true),
            ("/v1/chat/", false),
            ("/v1/chats", false),
            ("/v1", false),
            ("/items/7/run", true),
            ("/items//run", false),
            ("/items/7", false),
            ("/files/a/b", true),
            ("/files/", true),
            ("/files", false),
            ("", false),
        ] {
            assert_eq!(expected, found.has_request(&Method::POST, path), "{path}");
            assert!(!found.has_request(&Method::PATCH, path), "{path}");
        }
        assert!(repeatable(&["POST /"]).has_request(&Method::POST, ""));
        assert!(repeatable(&["*"]).has_request(&Method::POST, "/any"));
    }

    #[test]
    fn unstarted_requests_are_no_repeatable_ones() {
        let found = repeatable(&["* unstarted"]);
        assert!(found.tells_starts() && !repeatable(&["*", "POST /x"]).tells_starts());
        assert!(!found.has_request(&Method::POST, "/unstarted"));
    }
}
