//! The load stream (design decision 7): what routers have to know of this replica, when it changes.
//!
//! Answered here, without Python and without a place at the gate. Changes are coalesced by
//! themselves: a report says how things are when it is written, not what happened.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use h2::SendStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use prost::Message;
use tokio::sync::watch;

use super::admit::refuse;
use super::connection::ConnectionState;
use crate::grpc::{CONTENT_TYPE_GRPC, Code, Framed, Status};
use crate::mesh::load::{LoadReport, ModelList};

/// Models that are loaded or loading.
pub(super) type Models = Arc<[String]>;

/// Starts a stream of reports, or refuses it to a stranger.
pub(super) fn answer(connection: &Rc<ConnectionState>, mut respond: SendResponse<Framed>) {
    if !connection.info.is_trusted() {
        let text = "only routers of the mesh, which have proven its token, are told the load";
        return refuse(respond, &Status::new(Code::Unimplemented, text), HeaderMap::new());
    }
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    // An error means that the client is gone: there is nobody to tell.
    let Ok(stream) = respond.send_response(response, false) else { return };
    let models = connection.server.models.subscribe();
    tokio::task::spawn_local(report(Rc::clone(connection), stream, models));
}

async fn report(
    connection: Rc<ConnectionState>,
    mut stream: SendStream<Framed>,
    mut models: watch::Receiver<Models>,
) {
    let mut draining = connection.draining.subscribe();
    // The first report comes whether or not something has changed.
    models.mark_changed();
    let mut sequence = 0;
    loop {
        tokio::select! {
            biased;
            _ = draining.wait_for(|is_draining| *is_draining) => break,
            _ = poll_fn(|context| stream.poll_reset(context)) => return,
            changed = models.changed() => if changed.is_err() { break },
        }
        sequence += 1;
        let model_ids = models.borrow_and_update().to_vec();
        let load = connection.server.load();
        let report = LoadReport {
            sequence,
            in_flight: load.in_flight,
            limit: load.limit,
            models: Some(ModelList { model_ids }),
        };
        if stream.send_data(Framed::new(report.encode_to_vec().into()), false).is_err() {
            return;
        }
        // A router that does not read gets one report when it does, not all that it missed.
        if wait_until_read(&mut stream).await.is_err() {
            return;
        }
    }
    let mut trailers = HeaderMap::new();
    Status::ok().write(&mut trailers);
    // An error means that the client is gone: there is nobody to tell.
    let _nobody_to_tell = stream.send_trailers(trailers);
}

/// Waits until the peer's window has room for another report.
async fn wait_until_read(stream: &mut SendStream<Framed>) -> Result<(), h2::Error> {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(capacity) => drop(capacity?),
            None => return Err(h2::Reason::CANCEL.into()),
        }
    }
    Ok(())
}
