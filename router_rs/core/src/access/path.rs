//! Paths of requests, and patterns over them.

use std::borrow::Cow;
use std::fmt;

/// A pattern for the paths of a rule.
///
/// * `/pkg.Service/Method`: this path.
/// * `/pkg.Service/*`: exactly one segment, not empty, for the `*`.
/// * `/prefix/**`: `/prefix` and everything below it; `/**` is every path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Exact,
    /// The length of the part before `*`, slash included.
    OneBelow(usize),
    /// The length of the part before `/**`.
    AllBelow(usize),
}

/// A text that is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    text: String,
    reason: &'static str,
}

// === impl PathPattern ===

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It does not begin with a slash, has a star that is not its whole last segment, or could
    /// never match because no path is compared in that spelling.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let refuse = |reason| Err(PathError { text: text.to_owned(), reason });
        if !text.starts_with('/') {
            return refuse("a path begins with /");
        }
        let (fixed, kind) = if let Some(before) = text.strip_suffix("/**") {
            (before, Kind::AllBelow(before.len()))
        } else if let Some(before) = text.strip_suffix('*') {
            if !before.ends_with('/') {
                return refuse("* and ** stand for whole segments, at the end");
            }
            (before, Kind::OneBelow(before.len()))
        } else {
            (text, Kind::Exact)
        };
        if fixed.contains('*') {
            return refuse("* and ** stand for whole segments, at the end");
        }
        if !fixed.is_empty() && straighten(fixed).as_deref() != Some(fixed) {
            return refuse(
                "write it decoded and straight: no %XX, no empty segment, no \".\" or \"..\"",
            );
        }
        Ok(Self { text: text.to_owned(), kind })
    }

    /// Whether a path, as returned by [`straighten`], matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        match self.kind {
            Kind::Exact => path == self.text,
            Kind::OneBelow(len) => path
                .strip_prefix(&self.text[..len])
                .is_some_and(|segment| !segment.is_empty() && !segment.contains('/')),
            Kind::AllBelow(len) => path
                .strip_prefix(&self.text[..len])
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

/// The path as its server will read it: percent-encoding undone once. `None` if readers may
/// disagree on it (an encoded first slash, dot segments, empty segments, backslashes, NUL, invalid
/// UTF-8). Such a path matches nothing, so that no spelling can evade a rule.
pub(super) fn straighten(path: &str) -> Option<Cow<'_, str>> {
    if !path.starts_with('/') {
        return None;
    }
    let decoded = if path.contains('%') { Cow::Owned(decode(path)?) } else { Cow::Borrowed(path) };
    let rest = decoded.strip_prefix('/')?;
    let last = rest.split('/').count() - 1;
    let is_straight = rest.split('/').enumerate().all(|(at, segment)| {
        // An empty segment after the last slash is allowed: "/" and "/app/".
        !matches!(segment, "." | "..") && (!segment.is_empty() || at == last)
    });
    (is_straight && !decoded.contains(['\\', '\0'])).then_some(decoded)
}

fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let [high, low, tail @ ..] = tail else { return None };
            bytes.push(hexadecimal(*high)? << 4 | hexadecimal(*low)?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

impl fmt::Display for PathPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is no path: {}", self.text, self.reason)
    }
}

impl std::error::Error for PathError {}
