//! The formats of gRPC on top of HTTP/2: status, timeout, framing, compression, metadata.
//!
//! Pure conversions; nothing here waits or owns a socket.

mod code;
pub mod compress;
mod content_type;
pub mod framing;
mod http_status;
pub mod metadata;
pub mod size_limit;
mod status;
mod timeout;

pub use code::{Code, CodeSet};
pub use compress::{Encoding, Encodings, GRPC_ACCEPT_ENCODING, GRPC_ENCODING};
pub use content_type::{
    CONTENT_TYPE_GRPC, SUBTYPE_DEFAULT, content_type, describe_content_type, is_grpc_content_type,
    lower_content_type, refuse_pickle, subtype,
};
pub use framing::{Decoder, Framed, Message, PREFIX_BYTES};
pub use http_status::{
    HttpFailure, QUEUE_FULL_DEFAULT, client_closed_request, http_status, whole_seconds,
};
pub use size_limit::SizeLimit;
pub use status::{GRPC_MESSAGE, GRPC_STATUS, RETRY_PUSHBACK, Status, encode_message};
pub use timeout::{
    ClientTimeout, GRPC_TIMEOUT, format_timeout, parse_timeout, read_timeout, read_timeout_seconds,
};
