//! Which paths the HTTP APIs for language models have.

use std::sync::Arc;

use http::request;
use router_dispatch::{Deployment, Snapshot};
use router_llm::{Door, Found};

use crate::access::Asker;

pub(super) type Models = router_dispatch::Models<Arc<Deployment>>;

/// Whether the caller may make a request of one of the APIs; `None`: there is none at this path.
pub(super) fn sees(table: &Snapshot, asker: &Asker<'_>, parts: &request::Parts) -> Option<bool> {
    let path = parts.uri.path();
    let (_, models) = at(table, parts)?;
    Some(asker.may_reach(path, Some(models.application())))
}

/// The API at the path of a request, and the models behind it.
pub(super) fn at<'t>(table: &'t Snapshot, parts: &request::Parts) -> Option<(Found, &'t Models)> {
    let (below, models) = table.find_models(parts.uri.path())?;
    Some((Door::find(&parts.method, below)?, models))
}
