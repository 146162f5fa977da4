//! The rules, and their ruling on a request.

use std::fmt;

use super::name::NamePattern;
use super::path::{PathPattern, straighten};

/// SHA-256 of a bearer token.
pub type TokenHash = [u8; 32];

/// Lets some callers make calls of some paths. A call must meet all conditions of a rule.
#[derive(Clone, Debug)]
pub struct AccessRule {
    /// For logs and errors.
    pub name: String,
    /// The paths for which it holds; at least one.
    pub paths: Vec<PathPattern>,
    /// The applications whose calls it is about; `None`: those of every application, and of none.
    pub applications: Option<Vec<String>>,
    /// A verified client certificate must carry one of these names; `None`: no certificate needed.
    pub identities: Option<Vec<NamePattern>>,
    /// The bearer token must have one of these hashes; `None`: no token needed.
    pub token_hashes: Option<Vec<TokenHash>>,
    /// Everybody; then no credentials are required.
    pub anonymous: bool,
}

/// The known facts about a request.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// As it was sent, without the query.
    pub path: &'a str,
    /// The names in the verified client certificate; empty without one.
    pub identities: &'a [String],
    /// Of the bearer token, if there is one.
    pub token_hash: Option<TokenHash>,
    /// The application that it leads to.
    pub reach: Reach<'a>,
}

/// The application of a request, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach<'a> {
    /// It is not looked up yet. Admitted calls are checked again, unless the rules name no
    /// application at all.
    Unknown,
    /// It leads to no application.
    Nowhere,
    /// To this one.
    Application(&'a str),
}

/// The decision of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling<'a> {
    /// By this rule; `None`: no rule covers this call, and such calls are open.
    Allowed(Option<&'a str>),
    /// The caller is unknown, or the required token is missing: credentials may help.
    Unauthenticated,
    /// The caller is known, but not allowed.
    Denied,
}

/// Rules that are contradictory or incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    rule: String,
    reason: &'static str,
}

/// All rules. A path without a rule is closed to everybody, unless `default_allow` is set.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<AccessRule>,
    default_allow: bool,
}

// === impl Policy ===

impl Policy {
    /// Checks the rules.
    ///
    /// # Errors
    /// A rule has no path, has an empty list of applications, names or hashes, both admits
    /// everybody and names callers, or does neither.
    pub fn new(rules: Vec<AccessRule>, default_allow: bool) -> Result<Self, PolicyError> {
        for rule in &rules {
            if let Some(reason) = defect(rule) {
                return Err(PolicyError { rule: rule.name.clone(), reason });
            }
        }
        Ok(Self { rules, default_allow })
    }

    /// Whether any rule needs the hash of the token.
    pub fn asks_for_tokens(&self) -> bool {
        self.rules.iter().any(|rule| rule.token_hashes.is_some())
    }

    /// Whether the decision depends on the application.
    pub fn names_applications(&self) -> bool {
        self.rules.iter().any(|rule| rule.applications.is_some())
    }

    /// Decides about one request.
    pub fn decide(&self, request: &AccessRequest<'_>) -> Ruling<'_> {
        let is_known = !request.identities.is_empty() || self.knows(request.token_hash.as_ref());
        let refusal = if is_known { Ruling::Denied } else { Ruling::Unauthenticated };
        // A path that readers may interpret differently is closed to everybody, even with
        // `default_allow`.
        let Some(path) = straighten(request.path) else { return refusal };
        let mut is_ruled = false;
        let mut lacks_token = false;
        for rule in &self.rules {
            let is_of_path = rule.paths.iter().any(|pattern| pattern.matches(&path));
            if !is_of_path || !may_be_about(rule, request.reach) {
                continue;
            }
            // The call may turn out to belong to another application.
            is_ruled |= rule.applications.is_none() || request.reach != Reach::Unknown;
            let has_identity = has_identity(rule, request.identities);
            let has_token = has_token(rule, request.token_hash.as_ref());
            if has_identity && has_token {
                return Ruling::Allowed(Some(&rule.name));
            }
            lacks_token |= has_identity && !has_token;
        }
        if !is_ruled && self.default_allow {
            Ruling::Allowed(None)
        } else if lacks_token && !self.knows(request.token_hash.as_ref()) {
            Ruling::Unauthenticated
        } else {
            refusal
        }
    }

    /// Whether any rule accepts this token.
    fn knows(&self, hash: Option<&TokenHash>) -> bool {
        hash.is_some()
            && self.rules.iter().any(|rule| rule.token_hashes.is_some() && has_token(rule, hash))
    }
}

fn may_be_about(rule: &AccessRule, reach: Reach<'_>) -> bool {
    let Some(applications) = &rule.applications else { return true };
    match reach {
        Reach::Unknown => true,
        Reach::Nowhere => false,
        Reach::Application(name) => applications.iter().any(|one| one == name),
    }
}

fn has_identity(rule: &AccessRule, names: &[String]) -> bool {
    rule.identities.as_ref().is_none_or(|patterns| {
        patterns.iter().any(|pattern| names.iter().any(|name| pattern.matches(name)))
    })
}

fn has_token(rule: &AccessRule, hash: Option<&TokenHash>) -> bool {
    let Some(known) = &rule.token_hashes else { return true };
    // All are compared, so that the time does not reveal which one matched.
    hash.is_some_and(|hash| known.iter().fold(false, |found, one| found | is_same_hash(one, hash)))
}

/// Whether two hashes are equal, in a time that does not depend on their content.
pub fn is_same_hash(left: &TokenHash, right: &TokenHash) -> bool {
    let difference = left.iter().zip(right).fold(0, |bits, (left, right)| bits | (left ^ right));
    std::hint::black_box(difference) == 0
}

fn defect(rule: &AccessRule) -> Option<&'static str> {
    let asks = rule.identities.is_some() || rule.token_hashes.is_some();
    if rule.paths.is_empty() {
        Some("it has no path")
    } else if rule.applications.as_ref().is_some_and(Vec::is_empty) {
        Some("its list of applications is empty: it would hold for none")
    } else if rule.identities.as_ref().is_some_and(Vec::is_empty) {
        Some("its list of identities is empty: nobody would be let in")
    } else if rule.token_hashes.as_ref().is_some_and(Vec::is_empty) {
        Some("its list of tokens is empty: nobody would be let in")
    } else if rule.anonymous && asks {
        Some("it is anonymous and asks for an identity or a token: leave one of them out")
    } else if !rule.anonymous && !asks {
        Some("it asks for nothing: name identities or tokens, or say that it is anonymous")
    } else {
        None
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rule {:?} cannot be used: {}", self.rule, self.reason)
    }
}

impl std::error::Error for PolicyError {}
