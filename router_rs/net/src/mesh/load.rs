//! The messages of `proto/pyserve/wire/v1/load.proto`, where their fields are explained.
//!
//! Written by hand with prost's derive macros: two small messages are not worth a code generator
//! that needs protoc. A test holds them against the bytes that another implementation writes.

use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadReport {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint32, tag = "2")]
    pub in_flight: u32,
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    #[prost(message, optional, tag = "4")]
    pub models: Option<ModelList>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelList {
    #[prost(string, repeated, tag = "1")]
    pub model_ids: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_proto_file() {
        let model_ids = vec!["a".to_owned(), "bc".to_owned()];
        let models = Some(ModelList { model_ids });
        let report = LoadReport { sequence: 1, in_flight: 2, limit: 300, models };
        // `LoadReport(...).SerializeToString()` of protobuf's Python.
        let expected = b"\x08\x01\x10\x02\x18\xac\x02\"\x07\n\x01a\n\x02bc";
        assert_eq!(&expected[..], report.encode_to_vec());
        assert_eq!(report, LoadReport::decode(&expected[..]).unwrap());
        // An empty list is not the same as none.
        let empty = LoadReport { models: Some(ModelList::default()), ..LoadReport::default() };
        assert_eq!(b"\"\x00", &empty.encode_to_vec()[..]);
    }
}
