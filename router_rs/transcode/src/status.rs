//! A status in HTTP: Connect's errors, and those of Google's JSON interfaces.
//!
//! Both map codes to the same HTTP statuses (connectrpc.com/docs/protocol, section Error codes;
//! google/rpc/code.proto), which are not those of plain HTTP in the mesh.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use prost::Message;
use prost_reflect::DescriptorPool;
use router_protocol::grpc::{Code, Status};
use serde_json::{Map, Value, json};

use super::coder::Failure;
use super::json::JsonType;

pub(super) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const UNPADDED: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `google.rpc.Status`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The form of a failure in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorForm {
    /// `{"code": "not_found", "message": "...", "details": [...]}`
    Connect,
    /// `{"error": {"code": 404, "status": "NOT_FOUND", "message": "...", "details": [...]}}`
    Google,
}

impl ErrorForm {
    /// The failure as JSON; `trailers` may have its details, `pool` their types.
    pub(super) fn write(
        self,
        status: &Status,
        trailers: &HeaderMap,
        pool: Option<&DescriptorPool>,
    ) -> Value {
        let details = details(trailers);
        match self {
            ErrorForm::Connect => {
                let details = details.iter().map(|detail| detail.of_connect(pool)).collect();
                let mut error = Map::from_iter([("code".into(), json!(names(status.code).0))]);
                put_text(&mut error, status, details);
                error.into()
            }
            ErrorForm::Google => {
                let details = details.iter().map(|detail| detail.of_google(pool)).collect();
                let code = http_status(status.code).as_u16();
                let mut error = Map::from_iter([
                    ("code".into(), json!(code)),
                    ("status".into(), json!(names(status.code).1)),
                ]);
                put_text(&mut error, status, details);
                json!({ "error": error })
            }
        }
    }
}

fn put_text(error: &mut Map<String, Value>, status: &Status, details: Vec<Value>) {
    if !status.message.is_empty() {
        error.insert("message".into(), json!(status.message));
    }
    if !details.is_empty() {
        error.insert("details".into(), details.into());
    }
}

/// Details that cannot be parsed are left out: the status itself is what matters.
fn details(trailers: &HeaderMap) -> Vec<Detail> {
    let value = trailers.get(DETAILS).and_then(|value| UNPADDED.decode(value.as_bytes()).ok());
    let status = value.and_then(|bytes| RichStatus::decode(&*bytes).ok());
    status.map(|status| status.details).unwrap_or_default()
}

impl Detail {
    fn type_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }

    fn as_json(&self, pool: Option<&DescriptorPool>) -> Option<Value> {
        let descriptor = pool?.get_message_by_name(self.type_name())?;
        let json = JsonType::new(descriptor).write(&self.value).ok()?;
        serde_json::from_slice(&json).ok()
    }

    fn of_connect(&self, pool: Option<&DescriptorPool>) -> Value {
        let mut detail = json!({ "type": self.type_name(), "value": UNPADDED.encode(&self.value) });
        if let Some(debug) = self.as_json(pool) {
            detail["debug"] = debug;
        }
        detail
    }

    /// As the JSON of an `Any`; if the type is not known, with the bytes as `value`.
    fn of_google(&self, pool: Option<&DescriptorPool>) -> Value {
        let mut detail = match self.as_json(pool) {
            Some(Value::Object(fields)) => fields,
            Some(value) => Map::from_iter([("value".into(), value)]),
            None => Map::from_iter([("value".into(), json!(UNPADDED.encode(&self.value)))]),
        };
        detail.insert("@type".into(), json!(self.type_url));
        detail.into()
    }
}

pub(super) fn http_status(code: Code) -> StatusCode {
    let number = match code {
        Code::Ok => 200,
        Code::Cancelled => 499,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::DeadlineExceeded => 504,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::PermissionDenied => 403,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unavailable => 503,
        Code::Unauthenticated => 401,
    };
    StatusCode::from_u16(number).expect("invariant: three digits")
}

/// The HTTP status of a failure of ours.
pub(super) fn failure_status(failure: &Failure<'_>) -> StatusCode {
    match failure.status.code {
        Code::Unimplemented if failure.is_of_mesh => StatusCode::NOT_FOUND,
        code => http_status(code),
    }
}

/// The names in Connect and in `google.rpc.Code`.
fn names(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::Ok => ("ok", "OK"),
        Code::Cancelled => ("canceled", "CANCELLED"),
        Code::Unknown => ("unknown", "UNKNOWN"),
        Code::InvalidArgument => ("invalid_argument", "INVALID_ARGUMENT"),
        Code::DeadlineExceeded => ("deadline_exceeded", "DEADLINE_EXCEEDED"),
        Code::NotFound => ("not_found", "NOT_FOUND"),
        Code::AlreadyExists => ("already_exists", "ALREADY_EXISTS"),
        Code::PermissionDenied => ("permission_denied", "PERMISSION_DENIED"),
        Code::ResourceExhausted => ("resource_exhausted", "RESOURCE_EXHAUSTED"),
        Code::FailedPrecondition => ("failed_precondition", "FAILED_PRECONDITION"),
        Code::Aborted => ("aborted", "ABORTED"),
        Code::OutOfRange => ("out_of_range", "OUT_OF_RANGE"),
        Code::Unimplemented => ("unimplemented", "UNIMPLEMENTED"),
        Code::Internal => ("internal", "INTERNAL"),
        Code::Unavailable => ("unavailable", "UNAVAILABLE"),
        Code::DataLoss => ("data_loss", "DATA_LOSS"),
        Code::Unauthenticated => ("unauthenticated", "UNAUTHENTICATED"),
    }
}
