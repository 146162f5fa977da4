//! Other protocols than gRPC.

use router_net::fuzzing::transcode;

/// A request in one of the protocols, by the first byte.
pub fn requests(data: &[u8]) {
    let parsers: [fn(&[u8]); 6] = [
        transcode::get,
        transcode::unary_json,
        transcode::rest,
        transcode::json_stream,
        transcode::proto_stream,
        transcode::web_text,
    ];
    one_of(&parsers, data);
}

/// A replica's answer, in each of the protocols.
pub fn answers(data: &[u8]) {
    transcode::answer(data);
}

/// What deployments register: descriptors, and path templates in them.
pub fn descriptors(data: &[u8]) {
    one_of(&[transcode::descriptors, transcode::template], data);
}

fn one_of(parsers: &[fn(&[u8])], data: &[u8]) {
    if let Some((first, rest)) = data.split_first() {
        parsers[usize::from(*first) % parsers.len()](rest);
    }
}
