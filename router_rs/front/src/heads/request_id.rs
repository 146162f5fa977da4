//! The id of a request: its client's, or a fresh one.

use std::cell::RefCell;

use http::{HeaderMap, HeaderValue};
use router_core::SplitMix64;
use router_io::random::any_u64;
use router_protocol::names::{OUR_REQUEST_ID, REQUEST_ID, spelled};

/// A client's id is replaced if it is longer, since every log line would carry it. Arbitrary.
const BYTES_MAX: usize = 256;

/// The header that Ray Serve's gRPC clients send.
const OTHER_NAME: &str = "request_id";

/// The positions of each byte's two digits in a UUID.
const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

const DIGITS: &[u8; 16] = b"0123456789abcdef";

thread_local! {
    static RANDOM: RefCell<Option<SplitMix64>> = const { RefCell::new(None) };
}

/// The request's id.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    let given = spelled(headers, &REQUEST_ID);
    let is_usable = |value: &&HeaderValue| !value.is_empty() && value.len() <= BYTES_MAX;
    given.filter(is_usable).cloned().unwrap_or_else(fresh)
}

/// Gives a call an id if it has none, so that all parties use the same. A gRPC client may also have
/// sent it as `request_id`.
pub(crate) fn complete(headers: &mut HeaderMap) {
    if spelled(headers, &REQUEST_ID).is_none() && !headers.contains_key(OTHER_NAME) {
        let mut id = fresh();
        // Each id is different: in HPACK's table it would displace headers that are repeated.
        id.set_sensitive(true);
        headers.insert(REQUEST_ID, id);
    }
}

/// Adds the request's id to the head of its answer. An id that the application has set stays, and
/// if it is another one, ours gets a name of its own, by which logs and `explain` know the request.
pub(crate) fn tell(headers: &mut HeaderMap, ours: &HeaderValue) {
    let is_taken = headers.get_all(REQUEST_ID).iter().any(|id| id != ours);
    headers.insert(if is_taken { OUR_REQUEST_ID } else { REQUEST_ID }, ours.clone());
}

/// A random number, which need not be secret, only unique.
pub(crate) fn number() -> u128 {
    let (high, low) = drawn();
    u128::from(high) << 64 | u128::from(low)
}

fn drawn() -> (u64, u64) {
    RANDOM.with_borrow_mut(|random| {
        let random = random.get_or_insert_with(|| SplitMix64::new(any_u64()));
        (random.next_u64(), random.next_u64())
    })
}

/// A random UUID (version 4, RFC 9562), as Ray Serve generates them.
fn fresh() -> HeaderValue {
    let (high, low) = drawn();
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    HeaderValue::from_bytes(&text(high, low)).expect("invariant: hex is visible ASCII")
}

/// The 32 digits in their five groups. By hand, since `format!` takes several times as long, for
/// each request.
fn text(high: u64, low: u64) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let bytes = high.to_be_bytes().into_iter().chain(low.to_be_bytes());
    for (at, byte) in PLACES.into_iter().zip(bytes) {
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 0xf)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn the_clients_name_is_kept_unless_it_is_empty_or_long() {
        let longest = "x".repeat(BYTES_MAX);
        for name in ["a", &longest] {
            assert_eq!(name, of(&with(name)));
        }
        for name in [String::new(), "x".repeat(BYTES_MAX + 1)] {
            assert_eq!(36, of(&with(&name)).len());
        }
    }

    #[test]
    fn a_call_gets_a_name_unless_it_has_one() {
        let mut headers = HeaderMap::new();
        complete(&mut headers);
        let name = headers[REQUEST_ID].clone();
        assert_eq!(36, name.len());
        complete(&mut headers);
        assert_eq!(name, headers[REQUEST_ID]);
        for other in ["request_id", "x_request_id"] {
            let mut headers = HeaderMap::new();
            headers.insert(other, HeaderValue::from_static("a"));
            complete(&mut headers);
            assert_eq!(1, headers.len(), "{other}");
        }
    }

    #[test]
    fn an_answer_keeps_the_applications_id_and_has_ours_too() {
        let ours = HeaderValue::from_static("ours");
        for (set, told, apart) in [
            (vec![], vec!["ours"], None),
            (vec!["ours"], vec!["ours"], None),
            (vec!["mine"], vec!["mine"], Some("ours")),
            (vec![""], vec![""], Some("ours")),
            (vec!["ours", "mine"], vec!["ours", "mine"], Some("ours")),
        ] {
            let values = set.into_iter().map(|id| (REQUEST_ID, HeaderValue::from_static(id)));
            let mut headers: HeaderMap = values.collect();
            tell(&mut headers, &ours);
            assert_eq!(told, headers.get_all(REQUEST_ID).iter().collect::<Vec<_>>());
            assert_eq!(apart, headers.get(OUR_REQUEST_ID).map(|id| id.to_str().unwrap()));
        }
    }

    #[test]
    fn the_text_has_all_digits_in_order() {
        let text = text(0x0123_4567_89ab_4def, 0x8edc_ba98_7654_3210);
        assert_eq!("01234567-89ab-4def-8edc-ba9876543210", std::str::from_utf8(&text).unwrap());
    }

    #[test]
    fn fresh_names_are_uuids_and_differ() {
        let names: std::collections::BTreeSet<String> =
            (0..1000).map(|_| of(&HeaderMap::new()).to_str().unwrap().to_owned()).collect();
        assert_eq!(1000, names.len());
        for name in names {
            let groups: Vec<&str> = name.split('-').collect();
            let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
            assert_eq!(vec![8, 4, 4, 4, 12], lengths, "{name}");
            assert!(groups[2].starts_with('4'), "{name}");
            assert!(groups[3].starts_with(['8', '9', 'a', 'b']), "{name}");
        }
    }
}
