//! The cost of an access decision: `cargo bench -p pyserve-router-core --bench access`.
//!
//! A policy of 100 rules with three paths, three names and three tokens each; a request that only
//! the last one allows, and one that none does. Measured with optimisation, a decision must take
//! less than 5 us. As `cargo test` runs it, it makes one short pass, to prove that it works.
#![allow(clippy::print_stdout)] // the table is the purpose
#![allow(clippy::disallowed_types)] // a benchmark reads the clock

use std::hint::black_box;
use std::time::Instant;

use router_core::{
    AccessPolicy, AccessRequest, AccessRule, NamePattern, PathPattern, Reach, Ruling,
};

const RULES: u8 = 100;
const BATCH: u32 = 100;
/// The time limit of a decision.
const LIMIT_NS: u32 = 5_000;

fn main() {
    let samples = if std::env::args().any(|argument| argument == "--bench") { 2000 } else { 3 };
    let policy = AccessPolicy::new((0..RULES).map(rule).collect(), false).expect("usable rules");
    let identities =
        ["spiffe://mesh/ns/prod/sa/client".to_owned(), "client.example.com".to_owned()];
    for (name, path) in [("last rule", "/pkg.Service99/Method"), ("no rule", "/pkg.Service/Method")]
    {
        let request = AccessRequest {
            path,
            identities: &identities,
            token_hash: Some([99; 32]),
            reach: Reach::Unknown,
        };
        let is_allowed = matches!(policy.decide(&request), Ruling::Allowed(_));
        assert_eq!(name == "last rule", is_allowed);
        let median_ns = median_ns(&policy, &request, samples);
        println!("{name:>9} of {RULES}: {median_ns} ns");
        assert!(cfg!(debug_assertions) || median_ns <= LIMIT_NS, "{median_ns} ns");
    }
}

fn median_ns(policy: &AccessPolicy, request: &AccessRequest<'_>, samples: usize) -> u32 {
    let mut times: Vec<u32> = (0..samples)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                black_box(policy.decide(black_box(request)));
            }
            start.elapsed().subsec_nanos() / BATCH
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn rule(number: u8) -> AccessRule {
    let path = |kind| PathPattern::parse(&format!("/pkg.Service{number}/{kind}")).expect("a path");
    let name = |at| {
        let text = format!("spiffe://mesh/ns/prod/sa/service-{number}-{at}");
        NamePattern::parse(&text).expect("a name")
    };
    AccessRule {
        name: format!("rule {number}"),
        paths: ["Method", "*", "**"].map(path).into(),
        applications: None,
        identities: (number != RULES - 1).then(|| [0, 1, 2].map(name).into()),
        token_hashes: Some(vec![[number; 32], [200; 32], [201; 32]]),
        anonymous: false,
    }
}
