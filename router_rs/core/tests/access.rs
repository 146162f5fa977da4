//! The callers that access rules admit: cases that a reader can check, and properties of all rules.

use proptest::collection::vec;
use proptest::prelude::*;
use router_core::{
    AccessPolicy, AccessRequest, AccessRule, NamePattern, PathPattern, Reach, Ruling, TokenHash,
};

const ALICE: TokenHash = [1; 32];
const BOB: TokenHash = [2; 32];
const STRANGER: TokenHash = [9; 32];
const ROUTER: &str = "spiffe://mesh/router";

fn rule(name: &str, paths: &[&str]) -> AccessRule {
    let paths = paths.iter().map(|path| PathPattern::parse(path).expect("a path"));
    AccessRule {
        name: name.to_owned(),
        paths: paths.collect(),
        applications: None,
        identities: None,
        token_hashes: None,
        anonymous: false,
    }
}

fn names(patterns: &[&str]) -> Vec<NamePattern> {
    patterns.iter().map(|text| NamePattern::parse(text).expect("a name")).collect()
}

fn policy(default_allow: bool) -> AccessPolicy {
    let rules = vec![
        AccessRule { anonymous: true, ..rule("probes", &["/grpc.health.v1.Health/*", "/-/**"]) },
        AccessRule {
            identities: Some(names(&["spiffe://mesh/*", "*.example.com"])),
            ..rule("mesh", &["/shop.Cart/*"])
        },
        AccessRule { token_hashes: Some(vec![ALICE]), ..rule("alice", &["/shop.Cart/Add"]) },
        AccessRule {
            identities: Some(names(&[ROUTER])),
            token_hashes: Some(vec![BOB]),
            ..rule("both", &["/shop.Admin/**"])
        },
    ];
    AccessPolicy::new(rules, default_allow).expect("usable rules")
}

#[track_caller]
fn check(expected: Ruling<'_>, path: &str, identities: &[&str], token: Option<TokenHash>) {
    let identities: Vec<String> = identities.iter().map(ToString::to_string).collect();
    let policy = policy(false);
    let request =
        AccessRequest { path, identities: &identities, token_hash: token, reach: Reach::Unknown };
    assert_eq!(expected, policy.decide(&request), "{path} {identities:?} {token:?}");
}

#[test]
fn a_rule_lets_in_whom_it_names() {
    check(Ruling::Allowed(Some("probes")), "/grpc.health.v1.Health/Check", &[], None);
    check(Ruling::Allowed(Some("probes")), "/-/healthz", &[], Some(STRANGER));
    check(Ruling::Allowed(Some("mesh")), "/shop.Cart/Add", &[ROUTER], None);
    check(Ruling::Allowed(Some("mesh")), "/shop.Cart/Get", &["a.example.com"], None);
    check(Ruling::Allowed(Some("alice")), "/shop.Cart/Add", &[], Some(ALICE));
    check(Ruling::Allowed(Some("both")), "/shop.Admin/Drop", &[ROUTER], Some(BOB));
}

#[test]
fn who_is_unknown_is_unauthenticated_everywhere() {
    for path in ["/shop.Cart/Add", "/shop.Admin/Drop", "/nothing/here", "/"] {
        check(Ruling::Unauthenticated, path, &[], None);
        check(Ruling::Unauthenticated, path, &[], Some(STRANGER));
    }
}

#[test]
fn who_is_known_is_denied_unless_a_token_would_help() {
    check(Ruling::Denied, "/shop.Cart/Get", &[], Some(ALICE));
    check(Ruling::Denied, "/nothing/here", &[ROUTER], None);
    check(Ruling::Denied, "/shop.Admin/Drop", &[], Some(BOB));
    check(Ruling::Denied, "/shop.Admin/Drop", &[ROUTER], Some(ALICE));
    check(Ruling::Unauthenticated, "/shop.Admin/Drop", &[ROUTER], None);
    check(Ruling::Unauthenticated, "/shop.Admin/Drop", &[ROUTER], Some(STRANGER));
}

#[test]
fn no_spelling_of_a_path_leads_around_its_rule() {
    check(Ruling::Allowed(Some("alice")), "/shop.Cart/%41dd", &[], Some(ALICE));
    let open = policy(true);
    let anonymous = |path| {
        open.decide(&AccessRequest {
            path,
            identities: &[],
            token_hash: None,
            reach: Reach::Unknown,
        })
    };
    assert_eq!(Ruling::Allowed(None), anonymous("/free/for/all"));
    for path in [
        "/shop%2eAdmin/Drop",
        "/shop.Admin%2fDrop",
        "/shop.Admin/",
        "/shop.Admin",
        "/free/../shop.Admin/Drop",
        "/free/%2e%2e/shop.Admin/Drop",
        "//shop.Admin/Drop",
        "/-/..%2fshop.Admin/Drop",
        "/shop.Admin\\Drop",
        "/%00",
        "/%ff",
        "%2ffree/for/all",
        "/%4",
        "/%zz",
        "*",
        "",
    ] {
        assert_eq!(Ruling::Unauthenticated, anonymous(path), "{path}");
    }
}

#[test]
fn names_match_whole_segments_and_labels() {
    let matches = |pattern, name| NamePattern::parse(pattern).expect("a name").matches(name);
    assert!(matches("spiffe://mesh/ns/*", "spiffe://mesh/ns/a"));
    assert!(matches("*.Example.com", "A.EXAMPLE.com"));
    assert!(matches("10.0.0.1", "10.0.0.1"));
    for (pattern, name) in [
        ("spiffe://mesh/ns/*", "spiffe://mesh/ns/"),
        ("spiffe://mesh/ns/*", "spiffe://mesh/ns/a/b"),
        ("spiffe://mesh/ns/*", "spiffe://mesh/ns"),
        ("spiffe://mesh/ns", "spiffe://MESH/ns"),
        ("*.example.com", "example.com"),
        ("*.example.com", ".example.com"),
        ("*.example.com", "a.b.example.com"),
        ("*.example.com", "spiffe://x.example.com"),
        ("*.é.com", "aé.com"),
    ] {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn patterns_that_mean_nothing_are_refused() {
    for text in ["", " a", "*", "a*", "*a.com", "*.", "a.*.com", "spiffe://*", "spiffe://m/a*"] {
        assert!(NamePattern::parse(text).is_err(), "{text}");
    }
    for text in ["", "a", "/a*", "/a/***", "/*/b", "/a//b", "/a/../b", "/%41", "/**/b"] {
        assert!(PathPattern::parse(text).is_err(), "{text}");
    }
    for text in ["/", "/**", "/*", "/a/", "/a/*", "/a/b/**"] {
        assert!(PathPattern::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn rules_that_ask_for_nothing_or_for_nobody_are_refused() {
    let refused = |rule| AccessPolicy::new(vec![rule], false).expect_err("no rule").to_string();
    let base = || rule("odd", &["/a"]);
    assert!(refused(base()).contains("asks for nothing"));
    assert!(refused(AccessRule { paths: vec![], anonymous: true, ..base() }).contains("no path"));
    assert!(refused(AccessRule { identities: Some(vec![]), ..base() }).contains("identities"));
    assert!(refused(AccessRule { token_hashes: Some(vec![]), ..base() }).contains("tokens"));
    let both = AccessRule { token_hashes: Some(vec![BOB]), anonymous: true, ..base() };
    assert!(refused(both).contains("\"odd\""));
}

fn any_path() -> impl Strategy<Value = String> {
    vec(prop_oneof!["[a-c]", Just("..".to_owned()), Just("%61".to_owned())], 0..4)
        .prop_map(|segments| format!("/{}", segments.join("/")))
}

fn any_rule() -> impl Strategy<Value = AccessRule> {
    let pattern = vec("[a-c]", 0..3).prop_flat_map(|segments| {
        let base = segments.iter().fold(String::new(), |path, segment| path + "/" + segment);
        prop_oneof![
            Just(format!("{base}/a")),
            Just(format!("{base}/*")),
            Just(format!("{base}/**"))
        ]
    });
    (vec(pattern, 1..3), 0..4).prop_map(|(paths, asks)| {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let base = rule("any", &paths);
        match asks {
            0 => AccessRule { anonymous: true, ..base },
            1 => AccessRule { identities: Some(names(&[ROUTER])), ..base },
            2 => AccessRule { token_hashes: Some(vec![ALICE]), ..base },
            _ => AccessRule {
                identities: Some(names(&[ROUTER])),
                token_hashes: Some(vec![BOB]),
                ..base
            },
        }
    })
}

fn any_caller() -> impl Strategy<Value = (Vec<String>, Option<TokenHash>)> {
    let names = prop_oneof![Just(vec![]), Just(vec![ROUTER.to_owned()])];
    let token = prop_oneof![Just(None), Just(Some(ALICE)), Just(Some(BOB)), Just(Some(STRANGER))];
    (names, token)
}

fn is_allowed(ruling: Ruling<'_>) -> bool {
    matches!(ruling, Ruling::Allowed(_))
}

proptest! {
    /// Without rules no call is admitted.
    #[test]
    fn no_rule_no_entry(path in any_path(), (identities, token_hash) in any_caller()) {
        let policy = AccessPolicy::new(vec![], false).expect("no rule is wrong");
        let request = AccessRequest { path: &path, identities: &identities, token_hash, reach: Reach::Unknown };
        prop_assert!(!is_allowed(policy.decide(&request)));
    }

    /// An additional rule never excludes a caller, and the order of rules affects only names.
    #[test]
    fn rules_only_add(
        rules in vec(any_rule(), 0..4), more in any_rule(), path in any_path(),
        (identities, token_hash) in any_caller(),
    ) {
        let request = AccessRequest { path: &path, identities: &identities, token_hash, reach: Reach::Unknown };
        let few = AccessPolicy::new(rules.clone(), false).expect("usable");
        let mut all = rules;
        all.push(more);
        let many = AccessPolicy::new(all.clone(), false).expect("usable");
        prop_assert!(!is_allowed(few.decide(&request)) || is_allowed(many.decide(&request)));
        all.reverse();
        let reversed = AccessPolicy::new(all, false).expect("usable");
        prop_assert_eq!(many.decide(&request), reversed.decide(&request));
    }

    /// An additional credential never excludes a caller, and unknown ones have no effect.
    #[test]
    fn credentials_only_help(
        rules in vec(any_rule(), 1..4), path in any_path(),
        (identities, token_hash) in any_caller(),
    ) {
        let policy = AccessPolicy::new(rules, false).expect("usable");
        let bare = AccessRequest { path: &path, identities: &[], token_hash: None, reach: Reach::Unknown };
        let with = AccessRequest { identities: &identities, token_hash, ..bare };
        prop_assert!(!is_allowed(policy.decide(&bare)) || is_allowed(policy.decide(&with)));
        let unknown = AccessRequest { token_hash: Some(STRANGER), ..bare };
        prop_assert_eq!(policy.decide(&bare), policy.decide(&unknown));
        // A caller without credentials never gets "permission denied".
        prop_assert_ne!(Ruling::Denied, policy.decide(&bare));
    }
}

#[test]
fn a_rule_that_names_applications_is_about_their_calls_alone() {
    let shop = || AccessRule {
        applications: Some(vec!["shop".to_owned(), "till".to_owned()]),
        token_hashes: Some(vec![ALICE]),
        ..rule("shop", &["/shop.Cart/**"])
    };
    let decide = |default_allow, token, reach| {
        let policy = AccessPolicy::new(vec![shop()], default_allow).expect("usable rules");
        assert!(policy.names_applications());
        let request =
            AccessRequest { path: "/shop.Cart/Add", identities: &[], token_hash: token, reach };
        match policy.decide(&request) {
            Ruling::Allowed(rule) => Ok(rule.map(ToOwned::to_owned)),
            Ruling::Unauthenticated => Err(true),
            Ruling::Denied => Err(false),
        }
    };
    let by_rule = Ok(Some("shop".to_owned()));
    for (token, reach, denied, open) in [
        (Some(ALICE), Reach::Unknown, by_rule.clone(), by_rule.clone()),
        (Some(ALICE), Reach::Application("till"), by_rule.clone(), by_rule),
        (Some(ALICE), Reach::Application("sho"), Err(false), Ok(None)),
        (Some(ALICE), Reach::Nowhere, Err(false), Ok(None)),
        // The application that it leads to may be open to all.
        (None, Reach::Unknown, Err(true), Ok(None)),
        (None, Reach::Application("shop"), Err(true), Err(true)),
        (None, Reach::Application("other"), Err(true), Ok(None)),
        (Some(STRANGER), Reach::Nowhere, Err(true), Ok(None)),
    ] {
        assert_eq!(denied, decide(false, token, reach), "{token:?} {reach:?}");
        assert_eq!(open, decide(true, token, reach), "{token:?} {reach:?}, open by default");
    }
    let nowhere = AccessRule { applications: Some(vec![]), ..shop() };
    let error = AccessPolicy::new(vec![nowhere], false).expect_err("it would hold for none");
    assert!(error.to_string().contains("applications"), "{error}");
}
