//! A route from what the controller says of its deployment.
//!
//! The controller has checked what users wrote; here are the checks of what a later release, or a
//! replica's code, might say and this process could not pass on.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use prost::Message;
use router_core::{NotSet, PolicyKind};
use router_protocol::grpc::{Code, CodeSet};
use router_protocol::mesh::view::{self, DeploymentView, EngineModel, ReplicaView};
use router_transcode::ServiceRoute;

use crate::ranker::Ranker;
use crate::table::llm::LlmRoute;
use crate::table::settings::RouterSettings;
use crate::table::snapshot::{DeploymentRoute, ReplicaRoute};
use crate::table::split::Share;

/// Additions to a view by the process of the router.
#[derive(Debug, Default)]
pub struct Added {
    /// The methods of services, by their full names. Those of others are not known.
    pub methods: BTreeMap<String, Vec<String>>,
    /// Options that are numbers, by their names; see [`router_core::RouterConfig::set`].
    pub options: BTreeMap<String, f64>,
    pub ranker: Option<Arc<dyn Ranker>>,
}

impl DeploymentRoute {
    /// Reads a serialized `DeploymentView`; the error says what cannot be used.
    pub fn read(view: Bytes, mut added: Added) -> Result<Self, String> {
        let view = DeploymentView::decode(view).map_err(|error| format!("view: {error}"))?;
        view.http_prefixes.iter().try_for_each(|prefix| check_prefix("http_prefixes", prefix))?;
        let key = view.key.unwrap_or_default();
        let service = |name: String| {
            let methods = added.methods.remove(&name);
            ServiceRoute { name, methods }
        };
        Ok(Self {
            application: key.application,
            deployment: key.name,
            services: view.services.into_iter().map(service).collect(),
            replicas: view.replicas.into_iter().map(replica).collect::<Result<_, _>>()?,
            is_scaled_to_zero: view.is_scaled_to_zero,
            max_queued_requests: number("max_queued_requests", view.max_queued_requests)?,
            request_timeout: time("request_timeout_s", view.request_timeout_s)?,
            max_request_bytes: number("max_request_bytes", view.max_request_bytes)?,
            router: settings(view.router.unwrap_or_default(), &added.options)?,
            http_prefixes: view.http_prefixes,
            queue_full_status: error_status(view.queue_full_status)?,
            file_descriptors: view.file_descriptors,
            retry_after: time("retry_after_s", view.retry_after_s)?,
            idempotent_methods: view.idempotent_methods,
            traffic: shares("traffic", view.traffic)?,
            mirror: shares("mirror", view.mirror)?,
            ranker: added.ranker,
            llm: llm(view.llm_prefix, view.engine_models)?,
        })
    }
}

/// `None`: no ingress serves models of it.
fn llm(prefix: String, models: Vec<EngineModel>) -> Result<Option<LlmRoute>, String> {
    if prefix.is_empty() || models.is_empty() {
        return Ok(None);
    }
    check_prefix("llm_prefix", &prefix)?;
    Ok(Some(LlmRoute { prefix, models }))
}

fn replica(view: ReplicaView) -> Result<ReplicaRoute, String> {
    let endpoints = view.endpoints.unwrap_or_default();
    Ok(ReplicaRoute {
        replica_id: view.replica_id,
        node: view.node,
        zone: view.zone,
        address: endpoints.address,
        unix_path: endpoints.unix_path,
        max_ongoing_requests: number("max_ongoing_requests", view.max_ongoing_requests)?,
        proves_itself: endpoints.proves_itself,
    })
}

fn settings(
    view: view::RouterSettings,
    options: &BTreeMap<String, f64>,
) -> Result<RouterSettings, String> {
    let mut settings = RouterSettings::default();
    // The process has logged a name that it does not know.
    settings.config.policy = PolicyKind::named(&view.policy).unwrap_or(settings.config.policy);
    if !view.retry_codes.is_empty() {
        let codes: Vec<_> = view.retry_codes.into_iter().map(Code::from_number).collect();
        settings.retry_codes = CodeSet::of(&codes);
    }
    for (name, value) in options {
        settings.config.set(name, *value).map_err(|error| match error {
            NotSet::NoSuchOption => format!("no router option has the name {name:?}"),
            NotSet::NoSuchValue => format!("{name} cannot be {value}"),
        })?;
    }
    Ok(settings)
}

fn number<N: TryFrom<T>, T: Copy + Display>(name: &str, value: T) -> Result<N, String> {
    N::try_from(value).map_err(|_| format!("{name} cannot be {value}"))
}

/// `None` for 0.
fn time(name: &str, seconds: f64) -> Result<Option<Duration>, String> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|error| format!("{name}={seconds}: {error}"))?;
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// A prefix travels in a header, and is compared by whole segments.
pub fn check_prefix(name: &str, prefix: &str) -> Result<(), String> {
    let is_root = prefix == "/";
    let is_path = prefix.starts_with('/') && !prefix.ends_with('/');
    if (is_root || is_path) && !prefix.contains(|character: char| character.is_control()) {
        return Ok(());
    }
    Err(format!(
        "{name}: {prefix:?} must be \"/\", or begin with a slash and not end with one, and \
         have no control characters"
    ))
}

fn shares(name: &str, shares: Vec<view::Share>) -> Result<Vec<Share>, String> {
    let total: f64 = shares.iter().map(|share| share.weight).sum();
    let is_share = |share: &view::Share| (0.0..=1.0).contains(&share.weight);
    // A float's sum of ten tenths is a little off.
    if !shares.iter().all(is_share) || total > 1.0 + 1e-9 {
        return Err(format!("{name}: weights are from 0 to 1, and at most 1 together"));
    }
    let share = |share: view::Share| {
        let view::DeploymentKey { application, name } = share.key.unwrap_or_default();
        Share { application, deployment: name, weight: share.weight }
    };
    Ok(shares.into_iter().map(share).collect())
}

/// 503 for 0.
fn error_status(status: i32) -> Result<StatusCode, String> {
    if status == 0 {
        return Ok(StatusCode::SERVICE_UNAVAILABLE);
    }
    let found = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    found
        .filter(|status| status.is_client_error() || status.is_server_error())
        .ok_or_else(|| format!("queue_full_status cannot be {status}, which is no error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(view: &DeploymentView, options: &[(&str, f64)]) -> Result<DeploymentRoute, String> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let added = Added { options, ..Added::default() };
        DeploymentRoute::read(view.encode_to_vec().into(), added)
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        let route = read(&DeploymentView::default(), &[]).unwrap();
        assert_eq!(RouterSettings::default(), route.router);
        assert_eq!((None, None), (route.request_timeout, route.retry_after));
        assert_eq!(StatusCode::SERVICE_UNAVAILABLE, route.queue_full_status);
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let share = view::Share { key: None, weight: 0.6 };
        let views = [
            DeploymentView { max_queued_requests: -1, ..Default::default() },
            DeploymentView { request_timeout_s: -1.0, ..Default::default() },
            DeploymentView { queue_full_status: 200, ..Default::default() },
            DeploymentView { http_prefixes: vec!["/a/".to_owned()], ..Default::default() },
            DeploymentView {
                llm_prefix: "a".to_owned(),
                engine_models: vec![EngineModel::default()],
                ..Default::default()
            },
            DeploymentView { traffic: vec![share.clone(), share], ..Default::default() },
        ];
        let names = [
            "max_queued_requests",
            "request_timeout_s",
            "queue_full_status",
            "http_prefixes",
            "llm_prefix",
            "traffic",
        ];
        for (view, name) in views.iter().zip(names) {
            let error = read(view, &[]).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
        let unknown = read(&DeploymentView::default(), &[("slow_start", 1.0)]).unwrap_err();
        assert!(unknown.contains("slow_start"), "{unknown}");
        assert!(read(&DeploymentView::default(), &[("slow_start_s", -1.0)]).is_err());
    }
}
