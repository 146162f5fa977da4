//! Which engine's models are behind a path.

use prost::Message;
use router_protocol::mesh::view::{DeploymentKey, DeploymentView, EngineModel, Share};

use crate::{
    Added, Chosen, DeploymentRoute, ReplicaLimits, RoutingTable, Served, TableConfig, TableReader,
};

fn model(id: &str) -> EngineModel {
    EngineModel { id: id.to_owned(), ..EngineModel::default() }
}

/// An engine below a prefix, with one model.
fn engine(application: &str, name: &str, prefix: &str, id: &str) -> DeploymentView {
    DeploymentView {
        key: Some(key(application, name)),
        llm_prefix: prefix.to_owned(),
        engine_models: vec![model(id)],
        ..DeploymentView::default()
    }
}

fn key(application: &str, name: &str) -> DeploymentKey {
    DeploymentKey { application: application.to_owned(), name: name.to_owned() }
}

fn reader(views: &[DeploymentView]) -> TableReader {
    let config = TableConfig {
        node: String::new(),
        zone: String::new(),
        token: Vec::new(),
        seed: 1,
        tls: None,
        limits: ReplicaLimits::default(),
    };
    let table = RoutingTable::new(config);
    let read = |view: &DeploymentView| {
        DeploymentRoute::read(view.encode_to_vec().into(), Added::default()).expect("a route")
    };
    table.apply(views.iter().map(read).collect());
    TableReader::new(table)
}

/// The deployment that has the model `m`.
fn holder(reader: &TableReader) -> Option<String> {
    reader.with(|table| {
        let (_, models) = table.find_models("/v1/models")?;
        let Chosen { place, .. } = models.find(Some("m")).ok()?;
        let Served { deployment, .. } = &models.served()[place];
        Some(deployment.entry.deployment.clone())
    })
}

#[test]
fn a_model_of_two_belongs_to_the_first_by_name() {
    let [first, second] = ["A", "B"].map(|name| engine("chat", name, "/", "m"));
    for views in [[first.clone(), second.clone()], [second, first]] {
        assert_eq!(Some("A"), holder(&reader(&views)).as_deref());
    }
}

#[test]
fn a_model_of_two_belongs_to_the_one_whose_calls_are_shared() {
    let share = Share { key: Some(key("chat", "A")), weight: 0.1 };
    let whole = DeploymentView { traffic: vec![share], ..engine("chat", "B", "/", "m") };
    let reader = reader(&[engine("chat", "A", "/", "m"), whole]);
    assert_eq!(Some("B"), holder(&reader).as_deref());
}

#[test]
fn one_prefix_has_the_models_of_one_application() {
    let reader = reader(&[engine("one", "A", "/", "a"), engine("two", "B", "/", "m")]);
    assert_eq!(None, holder(&reader));
}

#[test]
fn the_longest_prefix_of_either_kind_wins() {
    let plain = |view: DeploymentView, prefixes: &[&str]| {
        let http_prefixes = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
        DeploymentView { http_prefixes, ..view }
    };
    let other = DeploymentView { key: Some(key("plain", "P")), ..DeploymentView::default() };
    let reader = reader(&[
        plain(engine("chat", "A", "/", "m"), &["/"]),
        engine("team", "C", "/team/llm", "c"),
        plain(other, &["/team", "/team/llm/own"]),
    ]);
    for (path, expected) in [
        ("/v1/models", Some(("chat", "/v1/models"))),
        ("/", Some(("chat", "/"))),
        ("/team/v1/models", None),
        ("/team/llm", Some(("team", ""))),
        ("/team/llm/v1/models", Some(("team", "/v1/models"))),
        ("/team/llm/own/v1/models", None),
        ("/teams/v1", Some(("chat", "/teams/v1"))),
        ("*", None),
    ] {
        reader.with(|table| {
            let found = table.find_models(path);
            let found = found.map(|(below, models)| (models.application(), below));
            assert_eq!(expected, found, "{path}");
        });
    }
    for (path, expected) in [
        ("/index", Some("chat")),
        ("/team/index", Some("plain")),
        ("/team/llm/index", None),
        ("/team/llm/own/index", Some("plain")),
    ] {
        reader.with(|table| {
            let found = table.find_http(path).map(|(_, deployment)| deployment.application());
            assert_eq!(expected, found, "{path}");
        });
    }
}
