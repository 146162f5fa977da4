//! The query of a URL, in the format of forms (application/x-www-form-urlencoded).

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// One `name=value`, decoded.
pub(super) type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// All pairs in their order. A name without a value has an empty one.
///
/// # Errors
/// A sentence: the decoded bytes are not UTF-8.
pub(super) fn parse(query: &str) -> Result<Vec<Pair<'_>>, String> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// The first value of a name, with bytes that need not be text.
pub(super) fn bytes_of(query: &str, name: &str) -> Option<Vec<u8>> {
    let mut parts = query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    let (_, value) = parts.find(|(key, _)| decode(key).is_ok_and(|key| key == name))?;
    Some(percent_decode(value.replace('+', " ").as_bytes()).collect())
}

fn decode(text: &str) -> Result<Cow<'_, str>, String> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes()).decode_utf8();
    let owned = decoded.map(Cow::into_owned);
    owned.map(Cow::Owned).map_err(|_| format!("the query has {text:?}, which is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let pairs = parse("a=1&b=x%20y+z&&c&d=%7B%22s%22%3A%22=%22%7D&a=2").unwrap();
        let expected = [("a", "1"), ("b", "x y z"), ("c", ""), ("d", "{\"s\":\"=\"}"), ("a", "2")];
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(expected.to_vec(), pairs);
        assert!(parse("a=%ff").unwrap_err().contains("UTF-8"));
    }
}
