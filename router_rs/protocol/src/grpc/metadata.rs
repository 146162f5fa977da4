//! Metadata: which headers belong to the user, and the base64 of `-bin` values.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderName, HeaderValue};

/// gRPC sends `-bin` values without padding and accepts both forms.
const BINARY: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Names with this prefix belong to the mesh; see `names`.
pub const MESH_PREFIX: &str = "pyserve-";

/// One value as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Binary(Vec<u8>),
}

/// Names that the protocol uses for itself and never shows as metadata.
pub fn is_protocol_header(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "te" | "content-type"
            | "grpc-timeout"
            | "grpc-encoding"
            | "grpc-accept-encoding"
            | "grpc-status"
            | "grpc-message"
            | "content-length"
            | "host"
            | "pyserve-framing"
    )
}

pub fn is_binary(name: &str) -> bool {
    name.ends_with("-bin")
}

/// Iterates over the user's metadata in a header block, in order of arrival by name.
///
/// `mesh` says whether `pyserve-*` entries are shown (only on proven connections). Invalid base64
/// in binary values is left out, comma-joined values are split (gRPC over HTTP/2).
pub fn for_each(block: &HeaderMap, mesh: bool, mut visit: impl FnMut(&str, Value)) {
    for (name, value) in block {
        if is_protocol_header(name) || (!mesh && name.as_str().starts_with(MESH_PREFIX)) {
            continue;
        }
        if is_binary(name.as_str()) {
            for bytes in binary_values(value) {
                visit(name.as_str(), Value::Binary(bytes));
            }
        } else {
            visit(name.as_str(), Value::Text(String::from_utf8_lossy(value.as_bytes()).into()));
        }
    }
}

/// The values of a header with a `-bin` name. Invalid base64 is left out, and comma-joined values
/// are split.
pub fn binary_values(value: &HeaderValue) -> impl Iterator<Item = Vec<u8>> {
    let parts = value.as_bytes().split(|byte| *byte == b',');
    parts.filter_map(|part| BINARY.decode(part.trim_ascii()).ok())
}

/// Adds one pair to a header block.
///
/// # Errors
/// A sentence with the key and the error in it or in its value.
pub fn append(block: &mut HeaderMap, key: &str, value: &Value) -> Result<(), String> {
    let name = HeaderName::from_bytes(key.as_bytes())
        .map_err(|_| format!("metadata key {key:?} has characters that HTTP/2 forbids"))?;
    if name.as_str() != key {
        return Err(format!("metadata key {key:?} must be lower case"));
    }
    let encoded = match (value, is_binary(key)) {
        (Value::Binary(bytes), true) => HeaderValue::try_from(BINARY.encode(bytes)),
        (Value::Text(text), false) => HeaderValue::from_bytes(text.as_bytes()),
        (Value::Binary(_), false) => {
            return Err(format!("metadata {key:?} has a bytes value: its key must end in -bin"));
        }
        (Value::Text(_), true) => {
            return Err(format!("metadata {key:?} ends in -bin: its value must be bytes"));
        }
    };
    let encoded =
        encoded.map_err(|_| format!("metadata {key:?} has a value that is not printable ASCII"))?;
    block.append(name, encoded);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(block: &HeaderMap, mesh: bool) -> Vec<(String, Value)> {
        let mut pairs = Vec::new();
        for_each(block, mesh, |key, value| pairs.push((key.to_owned(), value)));
        pairs
    }

    #[test]
    fn pairs_round_trip_and_protocol_headers_stay_hidden() {
        let mut block = HeaderMap::new();
        block.insert("te", HeaderValue::from_static("trailers"));
        block.insert("pyserve-load", HeaderValue::from_static("1;2"));
        let text = Value::Text("v 1".into());
        let binary = Value::Binary(vec![0, 255, 10]);
        append(&mut block, "key", &text).unwrap();
        append(&mut block, "key-bin", &binary).unwrap();

        let expected = vec![("key".to_owned(), text), ("key-bin".to_owned(), binary)];
        assert_eq!(expected, collect(&block, false));
        assert_eq!(3, collect(&block, true).len());
    }

    #[test]
    fn binary_values_come_padded_unpadded_and_joined() {
        let mut block = HeaderMap::new();
        block.insert("k-bin", HeaderValue::from_static("AA==,AA, AAE"));
        let values: Vec<Value> = collect(&block, false).into_iter().map(|(_, v)| v).collect();
        let expected =
            [vec![0], vec![0], vec![0, 1]].into_iter().map(Value::Binary).collect::<Vec<_>>();
        assert_eq!(expected, values);
    }

    #[test]
    fn bad_pairs_are_named() {
        let cases = [
            ("Key", Value::Text("v".into()), "lower case"),
            ("k y", Value::Text("v".into()), "forbids"),
            ("key", Value::Text("a\nb".into()), "printable"),
            ("key", Value::Binary(vec![1]), "-bin"),
            ("key-bin", Value::Text("v".into()), "bytes"),
        ];
        for (key, value, part) in cases {
            let error = append(&mut HeaderMap::new(), key, &value).unwrap_err();
            assert!(error.contains(part) && error.contains(key), "{error}");
        }
    }
}
