//! The content type: that a request is gRPC, and which codec its messages are in.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use super::{Code, Status};

/// Without a codec: protobuf by convention.
pub const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static(BASE);

/// The codec of a content type that names none.
pub const SUBTYPE_DEFAULT: &str = "proto";

const BASE: &str = "application/grpc";

/// The codec that only members of the mesh may use (design decision 12).
const PICKLE: &[u8] = b"pickle";

/// `application/grpc` in any letter case, alone or with a `+codec` or parameters; not
/// `application/grpc-web`.
pub fn is_grpc_content_type(value: Option<&HeaderValue>) -> bool {
    value
        .and_then(|value| behind_base(value.as_bytes()))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t')))
}

/// The part after `application/grpc`; a media type is case-insensitive (RFC 9110, 8.3.1).
fn behind_base(value: &[u8]) -> Option<&[u8]> {
    let (base, rest) = value.split_at_checked(BASE.len())?;
    base.eq_ignore_ascii_case(BASE.as_bytes()).then_some(rest)
}

/// Writes the content type of a gRPC request in the usual letter case, for readers that distinguish.
pub fn lower_content_type(headers: &mut HeaderMap) {
    let Some(value) = headers.get_mut(CONTENT_TYPE) else { return };
    if value.as_bytes().starts_with(BASE.as_bytes()) {
        return;
    }
    if let Some(rest) = behind_base(value.as_bytes()) {
        let lower = [BASE.as_bytes(), rest].concat();
        *value = HeaderValue::from_maybe_shared(Bytes::from(lower))
            .expect("invariant: parts of header values");
    }
}

/// The content type of a request, as the beginning of a sentence.
pub fn describe_content_type(headers: &HeaderMap) -> String {
    /// The most that is useful in an error.
    const BYTES_MAX: usize = 100;
    match headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) {
        None => "no content-type came".to_owned(),
        Some(value) => {
            let shown = value[..value.len().min(BYTES_MAX)].escape_ascii();
            format!("content-type \"{shown}\" came")
        }
    }
}

/// The codec of a gRPC content type in lower case, [`SUBTYPE_DEFAULT`] when it names none.
pub fn subtype(value: Option<&HeaderValue>) -> Cow<'_, str> {
    let codec = value
        .and_then(|value| behind_base(value.as_bytes())?.strip_prefix(b"+"))
        .map(|rest| rest.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next())
        .map(Option::unwrap_or_default);
    match codec {
        None | Some(b"") => Cow::Borrowed(SUBTYPE_DEFAULT),
        Some(codec) => {
            let text = String::from_utf8_lossy(codec);
            let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
            if is_lower { text } else { Cow::Owned(text.to_ascii_lowercase()) }
        }
    }
}

/// The content type of messages in a codec; an empty `subtype` names none.
///
/// # Errors
/// A sentence about the valid characters of a codec's name.
pub fn content_type(subtype: &str) -> Result<HeaderValue, String> {
    // The usual names cost no allocation.
    let known = match subtype {
        "" => BASE,
        "proto" => "application/grpc+proto",
        "raw" => "application/grpc+raw",
        "json" => "application/grpc+json",
        "msgpack" => "application/grpc+msgpack",
        "pickle" => "application/grpc+pickle",
        "cloudpickle" => "application/grpc+cloudpickle",
        _ => return unusual(subtype),
    };
    Ok(HeaderValue::from_static(known))
}

fn unusual(subtype: &str) -> Result<HeaderValue, String> {
    let is_part_of_name = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
    };
    if !subtype.bytes().all(is_part_of_name) {
        return Err(format!(
            "content-subtype {subtype:?} is no codec's name, use a-z, 0-9, '-', '_' and '.'"
        ));
    }
    Ok(HeaderValue::from_maybe_shared(Bytes::from(format!("{BASE}+{subtype}")))
        .expect("invariant: the name is visible ASCII"))
}

/// Refuses `+pickle`, `+cloudpickle` and codecs derived from them, in any letter case: for
/// connections that have not proven the mesh token (design decision 12).
///
/// # Errors
/// `UNIMPLEMENTED`, asking for another codec.
pub fn refuse_pickle(value: Option<&HeaderValue>) -> Result<(), Status> {
    let is_pickle = value.is_some_and(|value| {
        // Most name no codec, so there is nothing to search.
        let bytes = value.as_bytes();
        let rest = behind_base(bytes).unwrap_or(bytes);
        rest.windows(PICKLE.len()).any(|part| part.eq_ignore_ascii_case(PICKLE))
    });
    if is_pickle {
        let text = "pickle is spoken only inside the mesh, use another codec";
        return Err(Status::new(Code::Unimplemented, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_web_is_another_content_type() {
        for (text, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("Application/GRPC", true),
            ("APPLICATION/gRPC+Proto", true),
            ("application/grpc\t; charset=utf-8", true),
            ("Application/GRPC-Web", false),
            ("application/grpc-web", false),
            ("application/gr", false),
            ("application/json", false),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(expected, is_grpc_content_type(Some(&value)), "{text}");
        }
        assert!(!is_grpc_content_type(None));
    }

    #[test]
    fn a_content_type_is_passed_on_in_lower_case() {
        for (text, expected) in [
            ("Application/GRPC", "application/grpc"),
            ("APPLICATION/gRPC+Proto; X=Y", "application/grpc+Proto; X=Y"),
            ("application/grpc+proto", "application/grpc+proto"),
            ("Application/JSON", "Application/JSON"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            lower_content_type(&mut headers);
            assert_eq!(expected, headers[CONTENT_TYPE].to_str().unwrap());
        }
    }

    #[test]
    fn the_codec_is_what_follows_the_plus() {
        for (text, expected) in [
            ("application/grpc", "proto"),
            ("application/grpc+", "proto"),
            ("application/grpc;charset=utf-8", "proto"),
            ("application/grpc+json", "json"),
            ("application/grpc+JSON; charset=utf-8", "json"),
            ("Application/GRPC+Json", "json"),
            ("Application/GRPC", "proto"),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(expected, subtype(Some(&value)), "{text}");
        }
        assert_eq!("proto", subtype(None));
    }

    #[test]
    fn a_codecs_name_goes_there_and_back() {
        for name in ["proto", "raw", "json", "msgpack", "pickle", "cloudpickle", "x-my.codec_2"] {
            let value = content_type(name).unwrap();
            assert_eq!(format!("application/grpc+{name}"), value.to_str().unwrap());
            assert_eq!(name, subtype(Some(&value)));
        }
        assert_eq!(Ok(CONTENT_TYPE_GRPC), content_type(""));
        for name in ["a b", "Json", "x;y", "x\n", "☃"] {
            assert!(content_type(name).unwrap_err().contains("a-z"), "{name}");
        }
    }

    #[test]
    fn every_spelling_of_pickle_is_refused() {
        for (text, expected) in [
            ("application/grpc+pickle", true),
            ("application/grpc+CloudPickle", true),
            ("application/grpc+pickle5;x=y", true),
            ("APPLICATION/GRPC+PICKLE", true),
            ("application/grpc+msgpack", false),
            ("application/grpc", false),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(expected, refuse_pickle(Some(&value)).is_err(), "{text}");
        }
    }
}
