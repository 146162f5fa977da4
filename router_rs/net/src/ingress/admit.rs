//! What happens at HEADERS: a request becomes a call, or is answered on the spot.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use super::call::{self, Admitted, fail};
use super::connection::ConnectionState;
use super::state::count;
use crate::dispatch::exchange::Head;
use crate::dispatch::{Deployment, Found, strip_mesh_headers};
use crate::grpc::{Code, Status, is_grpc_content_type, read_timeout, refuse_pickle};

/// Metadata that picks among applications with the same service.
const APPLICATION: &str = "application";

/// Starts the request's task, or answers it.
pub(super) fn admit(
    connection: &Rc<ConnectionState>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let counters = &connection.ingress.counters;
    count(&counters.calls);
    let (mut parts, body) = request.into_parts();
    if let Some(status) = http_refusal(&parts.method, &parts.headers) {
        count(&counters.answered_here);
        return answer_http(respond, status);
    }
    strip_mesh_headers(&mut parts.headers);
    let received = Instant::now();
    let path = parts.uri.path();
    match connection.check_access(path, &parts.headers).and_then(|()| {
        let deadline = read_head(&parts.headers, received)?;
        let deployment = find(connection, path, &parts.headers)?;
        Ok((deadline, deployment))
    }) {
        Ok((deadline, deployment)) => {
            let bound = deployment.request_timeout.map(|timeout| received + timeout);
            let is_own = deadline.is_some() && (bound.is_none() || deadline <= bound);
            let deadline = if is_own { deadline } else { bound };
            let head = Head { parts, timeout_since: is_own.then_some(received) };
            call::start(connection, Admitted { head, deadline, deployment, body, respond });
        }
        Err(status) => {
            count(&counters.answered_here);
            fail(&mut respond, &status);
        }
    }
}

fn http_refusal(method: &Method, headers: &HeaderMap) -> Option<StatusCode> {
    if !is_grpc_content_type(headers.get(CONTENT_TYPE)) {
        Some(StatusCode::UNSUPPORTED_MEDIA_TYPE)
    } else if method != Method::POST {
        Some(StatusCode::METHOD_NOT_ALLOWED)
    } else {
        None
    }
}

/// The client's deadline.
fn read_head(headers: &HeaderMap, received: Instant) -> Result<Option<Instant>, Status> {
    refuse_pickle(headers.get(CONTENT_TYPE))?;
    Ok(read_timeout(headers)?.map(|timeout| received + timeout))
}

fn find(
    connection: &ConnectionState,
    path: &str,
    headers: &HeaderMap,
) -> Result<Arc<Deployment>, Status> {
    let application = headers.get(APPLICATION).and_then(|value| value.to_str().ok());
    connection.table.with(|table| match table.find(path, application) {
        Found::Deployment(deployment) => Ok(Arc::clone(deployment)),
        Found::Nothing => Err(Status::new(
            Code::Unimplemented,
            match application {
                Some(application) => {
                    format!("no deployment of application {application} serves {path}")
                }
                None => format!("no deployment serves {path}"),
            },
        )),
        Found::Ambiguous(applications) => Err(Status::new(
            Code::InvalidArgument,
            format!(
                "{path} is served by the applications {}: name one in the metadata \
                 \"{APPLICATION}\"",
                applications.join(" and ")
            ),
        )),
    })
}

fn answer_http(mut respond: SendResponse<Bytes>, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    // An error means that the client is gone: there is nobody to tell.
    let _nobody_to_tell = respond.send_response(response, true);
}
