//! Tables with arbitrary content, and look-ups in them.

use std::collections::BTreeSet;

use crate::{DeploymentRoute, Found, ReplicaLimits, RoutingTable, TableConfig, TableReader};

/// Applies `routes` to a table that held `before`, and looks up `path`.
///
/// Compares the result with a search through all routes.
pub fn routes(before: Vec<DeploymentRoute>, routes: &[DeploymentRoute], path: &str) {
    let table = RoutingTable::new(config());
    let reader = TableReader::new(table.clone());
    for step in [before, routes.to_vec(), routes.to_vec()] {
        table.apply(step);
        reader.with(|_| ());
    }
    reader.with(|snapshot| {
        let actual = snapshot.find_http(path).map(|(prefix, _)| prefix.to_owned());
        assert_eq!(longest_prefix(routes, path), actual, "the prefix of {path:?}");
        assert!(snapshot.http_routes().len() <= snapshot.http_prefixes_count());
        let providers = providers(routes, path);
        match snapshot.find(path, None) {
            Found::Nothing => assert_eq!(0, providers.len(), "{path:?} is registered"),
            Found::Deployment(found) => {
                assert!(providers.contains(&*found.entry.application), "{path:?} leads astray");
            }
            Found::Ambiguous(names) => {
                assert!(names.iter().all(|name| providers.contains(name)), "{path:?}: {names:?}");
            }
        }
    });
}

fn longest_prefix(routes: &[DeploymentRoute], path: &str) -> Option<String> {
    let prefixes = routes.iter().flat_map(|route| &route.http_prefixes);
    let stems = prefixes.map(|prefix| prefix.strip_suffix('/').unwrap_or(prefix));
    let holds = |stem: &&str| {
        let rest = path.strip_prefix(*stem);
        path.starts_with('/') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    stems.filter(holds).max_by_key(|stem| stem.len()).map(str::to_owned)
}

/// The applications that have the method, or a service that may have it.
fn providers<'a>(routes: &'a [DeploymentRoute], path: &str) -> BTreeSet<&'a str> {
    let mut applications = BTreeSet::new();
    let service = path.strip_prefix('/').and_then(|path| path.rsplit_once('/'));
    for route in routes {
        for offered in &route.services {
            let is_offered = match &offered.methods {
                Some(methods) => {
                    methods.iter().any(|method| path == format!("/{}/{method}", offered.name))
                }
                None => service.is_some_and(|(service, method)| {
                    service == offered.name && !service.is_empty() && !method.is_empty()
                }),
            };
            if is_offered {
                applications.insert(&*route.application);
            }
        }
    }
    applications
}

fn config() -> TableConfig {
    TableConfig {
        node: "here".to_owned(),
        zone: String::new(),
        token: Vec::new(),
        seed: 7,
        tls: None,
        limits: ReplicaLimits::default(),
    }
}
