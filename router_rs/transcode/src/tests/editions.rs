//! Services whose `.proto` has an edition: JSON and the binary form follow their fields' features.

use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FieldOptions, FileDescriptorProto,
    MethodDescriptorProto, ServiceDescriptorProto,
};

use super::*;

/// `tests/mesh/json/editions.proto` with all that it imports, as a `FileDescriptorSet`.
const EDITIONS: &[u8] = include_bytes!("../../../testdata/editions.binpb");

fn table(files: &[Bytes]) -> MethodTable {
    let services = [ServiceRoute { name: "editions.v1.Editions".into(), methods: None }];
    let source = MethodSource { application: "app", deployment: "D", services: &services, files };
    MethodTable::default().next([source])
}

fn edition_files() -> Vec<Bytes> {
    Files::decode(EDITIONS).unwrap().files
}

fn thing() -> JsonType {
    let table = table(&edition_files());
    assert_eq!(Vec::<String>::new(), table.problems("app", "D"));
    table.find("/editions.v1.Editions/Echo", None).unwrap().input.clone()
}

#[test]
fn fields_are_present_and_written_as_they_say() {
    for (json, wire) in [
        (r#"{"explicit":0}"#, &[0x10, 0][..]),
        (r#"{"needs":{"number":0}}"#, &[0x22, 2, 0x08, 0]),
        (r#"{"group":{"name":"a"}}"#, &[0x2b, 0x0a, 1, b'a', 0x2c]),
        (r#"{"prefixed":{"name":"a"}}"#, &[0x32, 3, 0x0a, 1, b'a']),
        (r#"{"groups":[{},{"group":{}}]}"#, &[0x3b, 0x3c, 0x3b, 0x2b, 0x2c, 0x3c]),
        (r#"{"things":{"a":{}}}"#, &[0x42, 5, 0x0a, 1, b'a', 0x12, 0]),
        (r#"{"packed":[1,2]}"#, &[0x4a, 2, 1, 2]),
        (r#"{"expanded":[1,2]}"#, &[0x50, 1, 0x50, 2]),
        (r#"{"closed":"CLOSED_TWO","closedList":["CLOSED_ONE"]}"#, &[0x58, 2, 0x62, 1, 1]),
        (r#"{"number":0}"#, &[0x70, 0]),
        (
            r#"{"plain":{"inner":{},"explicit":0,"number":0}}"#,
            &[0x8b, 1, 0x12, 0, 0x18, 0, 0x20, 0, 0x8c, 1],
        ),
        (r#"{"[editions.v1.extra]":5}"#, &[0xa0, 6, 5]),
        (r#"{"[editions.v1.extra_parts]":[{}]}"#, &[0xab, 6, 0xac, 6]),
    ] {
        assert_eq!(wire, thing().read(json.as_bytes()).unwrap(), "{json}");
        assert_eq!(json.as_bytes(), thing().write(wire).unwrap(), "{json}");
        assert!(thing().refusing_unknown(true).read(json.as_bytes()).is_ok(), "{json}");
    }
    // A closed enum has no other numbers: they are unknown fields.
    for wire in [&[0x58, 3][..], &[0x62, 1, 3], &[0x60, 0]] {
        assert_eq!(b"{}", &*thing().write(wire).unwrap());
    }
    let known = thing().write(&[0x58, 1, 0x58, 3, 0x62, 3, 1, 3, 2]).unwrap();
    assert_eq!(
        r#"{"closed":"CLOSED_ONE","closedList":["CLOSED_ONE","CLOSED_TWO"]}"#,
        String::from_utf8(known).unwrap()
    );
    for json in [r#"{"closed":3}"#, r#"{"closed":"3"}"#, r#"{"closedList":[1,0]}"#] {
        assert_eq!(Code::InvalidArgument, thing().read(json.as_bytes()).unwrap_err().code);
    }
    // Without presence a default counts as absent.
    assert_eq!(b"", &*thing().read(br#"{"implicit":0}"#).unwrap());
    assert_eq!(b"{}", &*thing().write(&[0x18, 0]).unwrap());
    let plain = thing().write(&[0x8b, 1, 0x0a, 0, 0x8c, 1]).unwrap();
    assert_eq!(br#"{"plain":{}}"#, &*plain);
    assert_eq!(br#"{"implicit":1}"#, &*thing().write(&[0x18, 1]).unwrap());
}

/// Compilers take them, those of proto3 too.
#[test]
fn fields_with_similar_names_have_json() {
    let field = |name: &str, number, label, packed: Option<bool>| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label as i32),
        r#type: Some(Type::Int32 as i32),
        options: packed.map(|packed| FieldOptions { packed: Some(packed), ..Default::default() }),
        ..Default::default()
    };
    let thing = DescriptorProto {
        name: Some("Thing".to_owned()),
        field: vec![
            field("user_id", 1, Label::Optional, None),
            field("userid", 2, Label::Optional, None),
            field("userId", 3, Label::Optional, None),
            field("packed", 4, Label::Repeated, None),
            field("expanded", 5, Label::Repeated, Some(false)),
        ],
        ..Default::default()
    };
    let echo = MethodDescriptorProto {
        name: Some("Echo".to_owned()),
        input_type: Some(".editions.v1.Thing".to_owned()),
        output_type: Some(".editions.v1.Thing".to_owned()),
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("similar.proto".to_owned()),
        package: Some("editions.v1".to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![thing],
        service: vec![ServiceDescriptorProto {
            name: Some("Editions".to_owned()),
            method: vec![echo],
            ..Default::default()
        }],
        ..Default::default()
    };
    let table = table(&[file.encode_to_vec().into()]);
    assert_eq!(Vec::<String>::new(), table.problems("app", "D"));
    let thing = &table.find("/editions.v1.Editions/Echo", None).unwrap().input;
    for (json, wire) in [
        (r#"{"userid":2}"#, &[0x10, 2][..]),
        (r#"{"user_id":1,"userid":2,"userId":3}"#, &[0x08, 1, 0x10, 2, 0x18, 3]),
        (r#"{"packed":[1,2],"expanded":[3]}"#, &[0x22, 2, 1, 2, 0x28, 3]),
    ] {
        assert_eq!(wire, thing.read(json.as_bytes()).unwrap(), "{json}");
        assert_eq!(json.as_bytes(), thing.write(wire).unwrap(), "{json}");
    }
    assert_eq!(b"{}", &*thing.write(&[0x08, 0, 0x10, 0]).unwrap());
}

#[test]
fn paths_of_their_own_are_kept() {
    let table = table(&edition_files());
    let parts = parts("GET", "/v1/editions/a?explicit=0&part.text=t", &[]);
    let opened = open(&table, &parts, &limits(1000), &|_| true);
    let Opened::Call(mut call) = opened else { panic!("{opened:?}") };
    let frame = upload(&mut *call.request, &[]).unwrap();
    let json = thing().write(&frame[5..]).unwrap();
    let expected = r#"{"name":"a","explicit":0,"part":{"text":"t"}}"#;
    assert_eq!(expected, String::from_utf8(json).unwrap());
}

#[test]
fn an_edition_of_the_future_is_named() {
    let mut files = edition_files();
    let last = files.pop().unwrap();
    // Field 14 of the file: 1000 becomes 1999. Of two the last one counts.
    files.push([&last[..], &[0x70, 0xcf, 0x0f]].concat().into());
    let problems = table(&files).problems("app", "D");
    let expected = "tests/mesh/json/editions.proto: the edition with number 1999 is unknown here";
    assert!(problems[0].contains(expected), "{problems:?}");
}
