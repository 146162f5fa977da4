//! Forms with files (`multipart/form-data`, RFC 7578), as whole bodies.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;

use crate::json::Wrong;

/// More than any form of ours has; arbitrary.
const FIELDS_MAX: usize = 64;

/// The headers of one field; arbitrary.
const HEAD_BYTES_MAX: usize = 4096;

/// As RFC 2046 has it, section 5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

const LINE_END: &[u8] = b"\r\n";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) content_type: Option<String>,
    /// A part of the body, which is not copied.
    pub(crate) data: Bytes,
}

/// The fields of a form, in the client's order.
///
/// # Errors
/// The body is not such a form.
pub(crate) fn read_form(headers: &HeaderMap, body: &Bytes) -> Result<Vec<Field>, Wrong> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = content_type.and_then(boundary).ok_or_else(|| {
        let actual = content_type.unwrap_or("absent");
        Wrong::new(format!("the content-type has to be multipart/form-data, but is {actual:?}"))
    })?;
    let delimiter = format!("\r\n--{boundary}");
    // The first delimiter needs no line end before it.
    let first = &delimiter.as_bytes()[LINE_END.len()..];
    let mut at = if body.starts_with(first) {
        first.len()
    } else {
        find(body, delimiter.as_bytes()).ok_or_else(truncated)? + delimiter.len()
    };
    let mut fields = Vec::new();
    while !body[at..].starts_with(b"--") {
        if fields.len() == FIELDS_MAX {
            return Err(Wrong::new(format!("the form has more than {FIELDS_MAX} fields")));
        }
        let (field, end) = read_field(body, at, delimiter.as_bytes())?;
        fields.push(field);
        at = end;
    }
    Ok(fields)
}

/// The boundary of a content type that is a form.
fn boundary(content_type: &str) -> Option<String> {
    let (kind, _) = content_type.split_once(';')?;
    let boundary = parameter(content_type, "boundary")?;
    let is_form = kind.trim().eq_ignore_ascii_case("multipart/form-data");
    let is_boundary = !boundary.is_empty() && boundary.len() <= BOUNDARY_BYTES_MAX;
    (is_form && is_boundary).then_some(boundary)
}

/// The field after a delimiter, and where the body goes on after the next one.
fn read_field(body: &Bytes, at: usize, delimiter: &[u8]) -> Result<(Field, usize), Wrong> {
    let line_end = find(&body[at..], LINE_END).ok_or_else(truncated)?;
    // From the end of the delimiter's line, so that a field without headers has an end of them too.
    let head_start = at + line_end;
    let limit = body.len().min(head_start + HEAD_BYTES_MAX);
    let head_length = find(&body[head_start..limit], b"\r\n\r\n").ok_or_else(|| {
        Wrong::new(format!("a field's headers do not end within {HEAD_BYTES_MAX} bytes"))
    })?;
    let head = String::from_utf8_lossy(&body[head_start..head_start + head_length]);
    let start = head_start + head_length + 2 * LINE_END.len();
    let length = find(&body[start..], delimiter).ok_or_else(truncated)?;
    let data = body.slice(start..start + length);
    Ok((Field { data, ..read_head(&head)? }, start + length + delimiter.len()))
}

fn read_head(head: &str) -> Result<Field, Wrong> {
    let (mut field, mut name) = (Field::default(), None);
    for line in head.lines() {
        let Some((header, value)) = line.split_once(':') else { continue };
        if header.eq_ignore_ascii_case("content-disposition") {
            name = parameter(value, "name");
            field.filename = extended(value, "filename*").or_else(|| parameter(value, "filename"));
        } else if header.eq_ignore_ascii_case("content-type") {
            field.content_type = Some(value.trim().to_owned());
        }
    }
    field.name = name.ok_or_else(|| Wrong::new("a field of the form has no name"))?;
    Ok(field)
}

/// The value of a parameter like `name="file"`.
fn parameter(header: &str, name: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (key, value) = rest.split_once('=')?;
        let (value, after) = read_value(value);
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after.split_once(';')?.1;
    }
}

/// A quoted or plain value, and what follows it.
fn read_value(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, character) in quoted.char_indices() {
        match character {
            _ if is_escaped => {
                value.push(character);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return (value, &quoted[at + 1..]),
            _ => value.push(character),
        }
    }
    (value, "")
}

/// A value with its character set in front (RFC 8187), of which UTF-8 is the only one in use.
fn extended(header: &str, name: &str) -> Option<String> {
    let value = parameter(header, name)?;
    let encoded = value.splitn(3, '\'').nth(2)?;
    Some(percent_decode_str(encoded).decode_utf8_lossy().into_owned())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let at = start + bytes[start..].iter().position(|byte| *byte == wanted[0])?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        start = at + 1;
    }
}

fn truncated() -> Wrong {
    Wrong::new("the form ends before its last boundary; send it whole")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn read(content_type: &str, body: &[u8]) -> Result<Vec<Field>, Wrong> {
        let content_type = HeaderValue::from_str(content_type).unwrap();
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
        read_form(&headers, &Bytes::copy_from_slice(body))
    }

    const FORM: &str = "multipart/form-data; charset=utf-8; boundary=\"a b\"";

    #[test]
    fn fields_are_read() {
        let body = b"preamble\r\n--a b\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\n\
            Content-Type: audio/wav\r\n\r\n\
            \r\n--a \r\n\r\n--a b  \r\n\
            content-disposition: form-data; filename*=UTF-8''%C3%A9; filename=e; name=model\r\n\r\n\
            \r\n--a b--\r\nepilogue";
        let fields = read(FORM, body).unwrap();
        let file = Field {
            name: "file".into(),
            filename: Some("a \"b\".wav".into()),
            content_type: Some("audio/wav".into()),
            data: Bytes::from_static(b"\r\n--a \r\n"),
        };
        let model =
            Field { name: "model".into(), filename: Some("\u{e9}".into()), ..Field::default() };
        assert_eq!(vec![file, model], fields);
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for (content_type, body) in [
            ("application/json", &b"{}"[..]),
            ("multipart/form-data", b"--a\r\n"),
            ("multipart/form-data; boundary=", b"--\r\n"),
            ("multipart/mixed; boundary=a", b"--a--"),
            ("multipart/form-data; boundary=a", b""),
            ("multipart/form-data; boundary=a", b"--a"),
            ("multipart/form-data; boundary=a", b"--a\r\n"),
            ("multipart/form-data; boundary=a", b"--a\r\n\r\n--a--"),
            ("multipart/form-data; boundary=a", b"--a\r\nx: y\r\n\r\ndata\r\n--a--"),
            ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: f; name=x\r\n\r\nd"),
        ] {
            read(content_type, body).unwrap_err();
        }
        let many = "--a\r\nContent-Disposition: f; name=x\r\n\r\n\r\n".repeat(FIELDS_MAX + 1);
        read("multipart/form-data; boundary=a", (many + "--a--").as_bytes()).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_file_comes_through(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut body = b"--a\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n".to_vec();
            body.extend_from_slice(&data);
            body.extend_from_slice(b"\r\n--a--");
            let fields = read("multipart/form-data; boundary=a", &body);
            // The boundary is not in it, or else the form has more fields or is broken.
            if find(&data, b"\r\n--a").is_none() && !data.starts_with(b"--a") {
                prop_assert_eq!(&data, &fields.unwrap()[0].data);
            }
        }

        #[test]
        fn garbage_is_no_panic(
            body in "(--a|\r\n|name=\"|;|:|x|\"|\\\\|Content-Disposition){0,40}",
        ) {
            let _ = read("multipart/form-data; boundary=a", body.as_bytes());
        }
    }
}
