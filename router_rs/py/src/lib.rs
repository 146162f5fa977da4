//! The Rust end of the ring: names and conversions, no decisions.
//!
//! `pyserve/_router.pyi` documents what Python may use; `router_net` does the work. Methods here
//! are short, and detach from the interpreter before any wait.

mod access;
mod allocator;
mod auth_context;
mod client;
mod convert;
mod descriptors;
mod digits;
mod doorbell;
mod endpoint;
mod files;
mod forks;
mod http;
mod limits;
mod measures;
mod payload;
mod ranker;
mod record_fields;
mod records;
mod reservation;
mod ring;
mod routing;
mod runtime;
mod served_spans;
mod server;
mod server_call;
mod table;
mod tls;

use pyo3::prelude::*;

/// Small short-lived buffers dominate; measured in the prototype against the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule(gil_used = false)]
fn _router(module: &Bound<'_, PyModule>) -> PyResult<()> {
    router_net::io::set_trim(allocator::trim);
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<server_call::ServerCall>()?;
    module.add_class::<served_spans::ServedSpans>()?;
    module.add_class::<http::HttpHead>()?;
    module.add_class::<files::OpenFile>()?;
    module.add_class::<client::Channel>()?;
    module.add_class::<client::ClientCall>()?;
    module.add_class::<reservation::Reservation>()?;
    module.add_class::<routing::CallOptions>()?;
    module.add_class::<ranker::Ranker>()?;
    module.add_class::<table::DeploymentRoute>()?;
    module.add_class::<records::CallRecords>()?;
    module.add_class::<records::CallRecord>()?;
    module.add_class::<table::RoutingTable>()?;
    module.add_class::<limits::IngressLimits>()?;
    module.add_class::<table::Ingress>()?;
    module.add_class::<access::AccessPolicy>()?;
    module.add_class::<access::AccessRule>()?;
    module.add_class::<tls::ServerTls>()?;
    module.add_class::<tls::ClientTls>()?;
    module.add_function(wrap_pyfunction!(tls::certificate_lifetime_s, module)?)?;
    module.add_function(wrap_pyfunction!(allocator::keep_freed_memory, module)?)?;
    module.add_function(wrap_pyfunction!(descriptors::raise_descriptor_limit, module)?)?;
    module.add_function(wrap_pyfunction!(digits::has_digits, module)?)?;
    module.add_function(wrap_pyfunction!(digits::may_have_infinity, module)?)?;
    module.add_function(wrap_pyfunction!(files::open_file, module)?)?;
    module.add_function(wrap_pyfunction!(http::http_status, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::forked, module)?)?;
    module.add_function(wrap_pyfunction!(forks::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(forks::after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(forks::after_fork_in_child, module)?)?;
    for (name, value) in [
        ("CALL", endpoint::CALL),
        ("MESSAGE", endpoint::MESSAGE),
        ("HALF_CLOSE", endpoint::HALF_CLOSE),
        ("CANCEL", endpoint::CANCEL),
        ("WRITABLE", endpoint::WRITABLE),
        ("INITIAL_METADATA", endpoint::INITIAL_METADATA),
        ("DONE", endpoint::DONE),
        ("STATE", endpoint::STATE),
        ("CHOSEN", endpoint::CHOSEN),
        ("TRACED_CALL", endpoint::TRACED_CALL),
        ("CANCEL_CLIENT", endpoint::CANCEL_CLIENT),
        ("CANCEL_DEADLINE", endpoint::CANCEL_DEADLINE),
        ("CANCEL_SHUTDOWN", endpoint::CANCEL_SHUTDOWN),
        ("IDENTITY", convert::IDENTITY),
        ("DEFLATE", convert::DEFLATE),
        ("GZIP", convert::GZIP),
    ] {
        module.add(name, value)?;
    }
    Ok(())
}
