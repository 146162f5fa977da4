//! Routing tables, and access rules.

use http::StatusCode;
use router_core::{
    AccessPolicy, AccessRequest, AccessRule, NamePattern, PathPattern, Reach, Ruling,
};
use router_net::dispatch::{DeploymentRoute, RouterSettings};
use router_net::transcode::ServiceRoute;

use crate::input::Input;

/// A path, then lines that define routes, rules and a caller, by their first letter.
pub fn routes(data: &[u8]) {
    let mut input = Input::new(data);
    let path = input.text();
    let (mut routes, mut before) = (Vec::<DeploymentRoute>::new(), Vec::new());
    let mut access = Access::default();
    while !input.is_empty() {
        let line = input.text();
        let mut characters = line.chars();
        let (kind, text) = (characters.next(), characters.as_str());
        match (kind, routes.last_mut()) {
            (Some('D'), _) => routes.push(deployment(text)),
            (Some('='), _) => before.clone_from(&routes),
            (Some('P'), Some(route)) if text.starts_with('/') => {
                route.http_prefixes.push(text.to_owned());
            }
            (Some('S'), Some(route)) => route.services.push(service(text)),
            (Some('F'), Some(route)) => route.file_descriptors.push(text.to_owned().into()),
            (Some(kind), _) => access.read(kind, text),
            (None, _) => {}
        }
    }
    access.check(path);
    router_net::fuzzing::routes(before, &routes, path);
}

fn deployment(text: &str) -> DeploymentRoute {
    let (application, deployment) = text.split_once('/').unwrap_or((text, "d"));
    DeploymentRoute {
        application: application.to_owned(),
        deployment: deployment.to_owned(),
        services: Vec::new(),
        replicas: Vec::new(),
        is_scaled_to_zero: false,
        max_queued_requests: text.len() as u32,
        request_timeout: None,
        max_request_bytes: 0,
        router: RouterSettings::default(),
        http_prefixes: Vec::new(),
        queue_full_status: StatusCode::SERVICE_UNAVAILABLE,
        file_descriptors: Vec::new(),
        retry_after: None,
        idempotent_methods: Vec::new(),
        traffic: Vec::new(),
        mirror: Vec::new(),
        ranker: None,
        llm: None,
    }
}

/// `name`, or `name method method ...`.
fn service(text: &str) -> ServiceRoute {
    let mut words = text.split(' ').map(str::to_owned);
    let name = words.next().unwrap_or_default();
    let methods: Vec<String> = words.collect();
    ServiceRoute { name, methods: (!methods.is_empty()).then_some(methods) }
}

/// One rule, and the caller.
#[derive(Debug, Default)]
struct Access {
    paths: Vec<PathPattern>,
    names: Vec<NamePattern>,
    identities: Vec<String>,
    is_open: bool,
}

impl Access {
    fn read(&mut self, kind: char, text: &str) {
        match kind {
            'p' => {
                if let Ok(pattern) = PathPattern::parse(text) {
                    assert_eq!(text, pattern.to_string(), "patterns are shown as written");
                    self.paths.push(pattern);
                }
            }
            'n' => {
                if let Ok(pattern) = NamePattern::parse(text) {
                    assert_eq!(text, pattern.to_string(), "patterns are shown as written");
                    self.names.push(pattern);
                }
            }
            'i' => self.identities.push(text.to_owned()),
            'o' => self.is_open = true,
            _ => {}
        }
    }

    /// No caller is admitted against the rules.
    fn check(&self, path: &str) {
        let rule = AccessRule {
            name: "rule".to_owned(),
            paths: self.paths.clone(),
            applications: None,
            identities: Some(self.names.clone()),
            token_hashes: None,
            anonymous: false,
        };
        let Ok(policy) = AccessPolicy::new(vec![rule], self.is_open) else { return };
        let ask = |path: &str, identities: &[String]| {
            let request =
                AccessRequest { path, identities, token_hash: None, reach: Reach::Unknown };
            matches!(policy.decide(&request), Ruling::Allowed(_))
        };
        let by_rule = |path: &str| {
            let request = AccessRequest {
                path,
                identities: &self.identities,
                token_hash: None,
                reach: Reach::Unknown,
            };
            policy.decide(&request) == Ruling::Allowed(Some("rule"))
        };
        let is_named = self.identities.iter().any(|identity| self.knows(identity));
        if by_rule(path) {
            assert!(is_named, "{path:?}: nobody of {:?} is named", self.identities);
            assert!(path.starts_with('/'), "{path:?} is no path");
        }
        if ask(path, &[]) {
            assert!(self.is_open, "{path:?} is open to nobody");
            let is_odd = ["/../", "/./", "//", "\\"].iter().any(|part| path.contains(part));
            assert!(!is_odd, "{path:?} can be read in two ways");
            // No percent-encoding of a letter evades the rule, or matches it by mistake.
            let spelled: String = path.bytes().map(spelling).collect();
            assert!(ask(&spelled, &[]), "{path:?} is open, {spelled:?} is not");
            assert_eq!(by_rule(path), by_rule(&spelled), "{path:?} and {spelled:?}");
        }
    }

    fn knows(&self, identity: &str) -> bool {
        self.names.iter().any(|pattern| pattern.matches(identity))
    }
}

/// Percent-encodes letters; slashes and encoded characters stay.
fn spelling(byte: u8) -> String {
    match byte {
        b'g'..=b'z' => format!("%{byte:02X}"),
        _ => char::from(byte).to_string(),
    }
}
