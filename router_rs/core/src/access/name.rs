//! Names in certificates (subject alternative names), exact or with one open segment.

use std::fmt;

/// A pattern for names in certificates.
///
/// * `spiffe://mesh/ns/prod/sa/router`: this URI, letter by letter.
/// * `spiffe://mesh/ns/prod/sa/*`: a URI with exactly one segment, not empty, for the `*`.
/// * `router.example.com`: this DNS name, in any case; addresses and mail addresses too.
/// * `*.example.com`: a DNS name with exactly one label for the `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Uri(String),
    /// With its slash.
    UriBelow(String),
    Dns(String),
    /// With its dot.
    DnsBelow(String),
}

/// A text that is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    text: String,
    reason: &'static str,
}

// === impl NamePattern ===

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is empty, or has a `*` that is not the whole last segment of a URI or the whole first
    /// label of a DNS name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refuse = |reason| Err(NameError { text: text.to_owned(), reason });
        if text.trim().is_empty() || text.trim() != text {
            return refuse("a name is not empty and has no blanks around it");
        }
        let kind = if is_uri(text) { uri(text) } else { dns(text) };
        let kind = match kind {
            Ok(kind) => kind,
            Err(reason) => return refuse(reason),
        };
        let (Kind::Uri(rest) | Kind::UriBelow(rest) | Kind::Dns(rest) | Kind::DnsBelow(rest)) =
            &kind;
        if rest.contains('*') {
            return refuse("only one * is allowed, as the last segment or the first label");
        }
        Ok(Self { text: text.to_owned(), kind })
    }

    /// Whether `name`, from a certificate, matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.kind {
            Kind::Uri(uri) => uri == name,
            Kind::UriBelow(before) => name
                .strip_prefix(before.as_str())
                .is_some_and(|segment| !segment.is_empty() && !segment.contains(['/', '?', '#'])),
            Kind::Dns(dns) => dns.eq_ignore_ascii_case(name),
            Kind::DnsBelow(after) => {
                let label_len = name.len().saturating_sub(after.len());
                !is_uri(name)
                    && name.is_char_boundary(label_len)
                    && name[label_len..].eq_ignore_ascii_case(after)
                    && label_len > 0
                    && !name[..label_len].contains('.')
            }
        }
    }
}

fn uri(text: &str) -> Result<Kind, &'static str> {
    match text.strip_suffix('*') {
        // The host of a URI cannot be a wildcard: "spiffe://*" would match everybody.
        Some(before) if before.ends_with('/') && !before.ends_with("//") => {
            Ok(Kind::UriBelow(before.to_owned()))
        }
        Some(_) => Err("in a URI, * stands for the whole last segment"),
        None => Ok(Kind::Uri(text.to_owned())),
    }
}

fn dns(text: &str) -> Result<Kind, &'static str> {
    match text.strip_prefix('*') {
        Some(after) if after.starts_with('.') && after.len() > 1 => {
            Ok(Kind::DnsBelow(after.to_ascii_lowercase()))
        }
        Some(_) => Err("in a DNS name, * stands for the whole first label"),
        None => Ok(Kind::Dns(text.to_ascii_lowercase())),
    }
}

/// A DNS name cannot contain the characters of a URI.
fn is_uri(text: &str) -> bool {
    text.contains("://")
}

impl fmt::Display for NamePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} names no certificate: {}", self.text, self.reason)
    }
}

impl std::error::Error for NameError {}
