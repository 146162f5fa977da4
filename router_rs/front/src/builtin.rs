//! Requests below `/-/` that a front answers itself: its health, and its routes.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use router_protocol::grpc::HttpFailure;

use crate::upstream::{NOTHING_YET, OWN_PREFIX, RouteLookup};

/// Health check for load balancers: 200 or 503.
const HEALTH: &str = "/-/healthz";

/// Route prefixes and their applications, as a JSON object.
const ROUTES: &str = "/-/routes";

/// The answer to a request below [`OWN_PREFIX`].
///
/// # Errors
/// An unknown path, another method than GET and HEAD, nothing is deployed yet, or the front drains.
pub(super) fn answer(
    method: &Method,
    path: &str,
    lookup: &RouteLookup,
    is_healthy: bool,
) -> Result<Response<Bytes>, HttpFailure> {
    let (content_type, body) = match path {
        HEALTH if !is_healthy => {
            let text = format!("{} is shutting down", lookup.owner());
            return Err(HttpFailure::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        // As in Ray Serve: balancers send nothing where everything would be 404.
        HEALTH if !lookup.is_populated() => {
            return Err(HttpFailure::new(StatusCode::SERVICE_UNAVAILABLE, NOTHING_YET));
        }
        HEALTH => ("text/plain; charset=utf-8", Bytes::from_static(b"success")),
        ROUTES => ("application/json", lookup.routes_json().into()),
        _ => {
            let text = format!("{path} is nothing, below {OWN_PREFIX} are healthz and routes");
            return Err(HttpFailure::new(StatusCode::NOT_FOUND, text));
        }
    };
    let mut response = Response::new(Bytes::new());
    if *method == Method::GET || *method == Method::HEAD {
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CONTENT_LENGTH, body.len().into());
        *response.body_mut() = body;
    } else {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_dispatch::{ReplicaLimits, RoutingTable, TableConfig, TableReader};

    #[test]
    fn health_is_503_for_balancers_when_no_more_is_wanted() {
        let lookup = RouteLookup::Table(TableReader::new(RoutingTable::new(TableConfig {
            node: String::new(),
            zone: String::new(),
            token: Vec::new(),
            seed: 1,
            tls: None,
            limits: ReplicaLimits::default(),
        })));
        let refused = answer(&Method::GET, HEALTH, &lookup, false).unwrap_err();
        assert_eq!(StatusCode::SERVICE_UNAVAILABLE, refused.status);
        // Nothing has been deployed.
        let refused = answer(&Method::GET, HEALTH, &lookup, true).unwrap_err();
        assert_eq!(
            (StatusCode::SERVICE_UNAVAILABLE, NOTHING_YET),
            (refused.status, &*refused.text)
        );
        let routes = answer(&Method::GET, ROUTES, &lookup, false).unwrap();
        assert_eq!(b"{}", &routes.body()[..]);
    }
}
