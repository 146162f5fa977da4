//! The cache entries that a request would like to find, as its metadata name them.
//!
//! The value of [`CACHE_KEYS`] is a list of keys, separated by commas: texts, which are hashed here, or
//! `#` and 16 hexadecimal digits for a key that its sender has hashed. Spaces around a key do not
//! count.

use std::fmt;

use http::{HeaderMap, HeaderValue};
use router_core::cache_key;

use crate::names::CACHE_KEYS;

/// Keys that one request may name. Arbitrary: of blocks with 32 tokens as many as 8 192 tokens have.
pub const KEYS_MAX: usize = 256;
/// Bytes that they may take. Servers and clients take about as much metadata by default.
pub const BYTES_MAX: usize = 8 * 1024;

/// Why a list of keys is none. The text says what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKeys(String);

impl fmt::Display for InvalidKeys {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(&self.0)
    }
}

/// The keys that a request names, in order; none without the header.
pub fn cache_keys(headers: &HeaderMap) -> Result<Vec<u64>, InvalidKeys> {
    match headers.get(CACHE_KEYS) {
        None => Ok(Vec::new()),
        Some(value) => parse(value.as_bytes()),
    }
}

/// The header for keys that are hashed.
pub fn header(keys: &[u64]) -> HeaderValue {
    let hashed: Vec<String> = keys.iter().map(|key| format!("#{key:016x}")).collect();
    HeaderValue::from_str(&hashed.join(",")).expect("invariant: hexadecimal digits are a value")
}

fn parse(value: &[u8]) -> Result<Vec<u64>, InvalidKeys> {
    if value.len() > BYTES_MAX {
        let length = value.len();
        let text = format!("has {length} bytes; send at most {BYTES_MAX}, the first keys");
        return Err(invalid(&text));
    }
    let keys = value.split(|byte| *byte == b',').map(|item| key(item.trim_ascii()));
    let keys: Vec<u64> = keys.collect::<Result<_, _>>()?;
    if keys.len() > KEYS_MAX {
        let count = keys.len();
        return Err(invalid(&format!("has {count} keys; send at most {KEYS_MAX}, the first ones")));
    }
    Ok(keys)
}

fn key(item: &[u8]) -> Result<u64, InvalidKeys> {
    match item {
        [] => Err(invalid("has an empty key; separate keys by one comma each")),
        [b'#', digits @ ..] => {
            let digits = std::str::from_utf8(digits).unwrap_or_default();
            let is_hash = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let hash = u64::from_str_radix(digits, 16).ok().filter(|hash| is_hash && *hash > 0);
            hash.ok_or_else(|| {
                invalid(&format!(
                    "has the key {:?}; after # come 16 hexadecimal digits, not all 0",
                    String::from_utf8_lossy(item)
                ))
            })
        }
        text => Ok(cache_key(text)),
    }
}

fn invalid(what: &str) -> InvalidKeys {
    InvalidKeys(format!("{CACHE_KEYS} {what}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(value: &str) -> Result<Vec<u64>, InvalidKeys> {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_KEYS, HeaderValue::from_str(value).unwrap());
        cache_keys(&headers)
    }

    #[test]
    fn texts_are_hashed_and_hashes_are_taken_as_they_are() {
        let keys = [cache_key(b"user-1"), cache_key("größe".as_bytes()), 0xab];
        assert_eq!(Ok(keys.to_vec()), of("user-1, größe ,#00000000000000ab"));
        assert_eq!(Ok(Vec::new()), cache_keys(&HeaderMap::new()));
    }

    #[test]
    fn what_is_no_list_of_keys_is_refused_with_its_reason() {
        for (value, reason) in [
            ("", "empty key"),
            ("a,,b", "empty key"),
            ("#12", "16 hexadecimal digits"),
            ("#000000000000000g", "16 hexadecimal digits"),
            ("#+00000000000000a", "16 hexadecimal digits"),
            ("#0000000000000000", "not all 0"),
            (&"k,".repeat(KEYS_MAX + 1), "at most"),
            (&"k".repeat(BYTES_MAX + 1), "at most 8192"),
        ] {
            let error = of(value).expect_err(value).to_string();
            assert!(error.starts_with("pyserve-cache-keys has "), "{error}");
            assert!(error.contains(reason) || error.contains("empty"), "{value:?}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hashed_keys_are_read_as_they_were_written(
            keys in prop::collection::vec(1..u64::MAX, 1..KEYS_MAX),
        ) {
            prop_assert_eq!(Ok(keys.clone()), parse(header(&keys).as_bytes()));
        }

        #[test]
        fn any_bytes_are_keys_or_an_error(value in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(keys) = parse(&value) {
                prop_assert!(!keys.is_empty() && keys.iter().all(|key| *key > 0));
            }
        }
    }
}
