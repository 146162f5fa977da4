//! Heads of plain HTTP requests and answers, between Python's types and those of `http`.

use std::borrow::Cow;
use std::sync::Arc;

use ::http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use ::http::{HeaderMap, StatusCode};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, intern};
use router_net::grpc::{self, Code, QUEUE_FULL_DEFAULT};
use router_net::names;
use router_net::server::{HttpHead as NetHead, ServedCall};

/// See the stub.
#[pyfunction]
pub(crate) fn http_status(code: u32) -> u16 {
    grpc::http_status(Code::from_number(code), QUEUE_FULL_DEFAULT).as_u16()
}

/// See the stub. A property is converted when it is read, from the original head.
#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct HttpHead {
    served_call: Arc<ServedCall>,
}

impl HttpHead {
    /// The call is one of plain HTTP.
    pub(crate) fn new(served_call: Arc<ServedCall>) -> Self {
        Self { served_call }
    }

    fn head(&self) -> NetHead<'_> {
        self.served_call.http_head().expect("invariant: checked when it was admitted")
    }
}

#[pymethods]
impl HttpHead {
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        method(py, self.head())
    }

    #[getter]
    fn target<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.head().target().as_bytes())
    }

    #[getter]
    fn version<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        version(py, self.head())
    }

    #[getter]
    fn scheme<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        scheme(py, self.head())
    }

    #[getter]
    fn client(&self) -> Option<(String, u16)> {
        client(self.head())
    }

    #[getter]
    fn root_path(&self) -> &str {
        self.served_call.http_head().map_or("", |head| head.root_path())
    }

    #[getter]
    fn is_websocket(&self) -> bool {
        self.head().is_websocket()
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        headers(py, &self.served_call, self.head())
    }
}

/// See the stub of `ServerCall.http_fields`: the mark of the head is read once for all of it.
pub(crate) fn fields<'py>(
    py: Python<'py>,
    served_call: &ServedCall,
) -> PyResult<Bound<'py, PyTuple>> {
    let head = served_call.http_head().expect("invariant: checked when it was admitted");
    let (path, query) = head.target().split_once('?').unwrap_or((head.target(), ""));
    let fields = [
        PyBool::new(py, head.is_websocket()).to_owned().into_any(),
        method(py, head).into_any(),
        latin1(py, path).into_any(),
        PyBytes::new(py, path.as_bytes()).into_any(),
        PyBytes::new(py, query.as_bytes()).into_any(),
        version(py, head).into_any(),
        scheme(py, head).into_any(),
        client(head).into_bound_py_any(py)?,
        PyString::new(py, head.root_path()).into_any(),
        headers(py, served_call, head)?.into_any(),
    ];
    PyTuple::new(py, fields)
}

fn method<'py>(py: Python<'py>, head: NetHead<'_>) -> Bound<'py, PyString> {
    match head.method() {
        "GET" => intern!(py, "GET").clone(),
        "POST" => intern!(py, "POST").clone(),
        other => PyString::new(py, other),
    }
}

fn version<'py>(py: Python<'py>, head: NetHead<'_>) -> Bound<'py, PyString> {
    match head.version() {
        "1.1" => intern!(py, "1.1").clone(),
        "2" => intern!(py, "2").clone(),
        other => PyString::new(py, other),
    }
}

fn scheme<'py>(py: Python<'py>, head: NetHead<'_>) -> Bound<'py, PyString> {
    match head.scheme() {
        "http" => intern!(py, "http").clone(),
        "https" => intern!(py, "https").clone(),
        other => PyString::new(py, other),
    }
}

/// The bytes of `text`, each as a character.
fn latin1<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    if text.is_ascii() {
        return PyString::new(py, text);
    }
    PyString::new(py, &text.bytes().map(char::from).collect::<String>())
}

fn client(head: NetHead<'_>) -> Option<(String, u16)> {
    let address = head.client()?;
    Some((address.ip().to_string(), address.port()))
}

fn headers<'py>(
    py: Python<'py>,
    served_call: &ServedCall,
    head: NetHead<'_>,
) -> PyResult<Bound<'py, PyList>> {
    let mut pairs = Vec::with_capacity(served_call.head.headers.len() + 1);
    head.for_each_header(|name, value| {
        let (name, value) = (PyBytes::new(py, name.as_bytes()), PyBytes::new(py, value));
        pairs.push((name, value));
    });
    PyList::new(py, pairs)
}

/// The status of a final answer; 101 accepts a WebSocket and nothing else.
///
/// # Errors
/// `ValueError` for another number.
pub(crate) fn status_from_python(served_call: &ServedCall, status: u16) -> PyResult<StatusCode> {
    let is_accepted = || {
        status == StatusCode::SWITCHING_PROTOCOLS.as_u16()
            && served_call.http_head().is_some_and(|head| head.is_websocket())
    };
    match StatusCode::from_u16(status) {
        Ok(code) if (200..600).contains(&status) || is_accepted() => Ok(code),
        _ => {
            let text = format!("an answer's status is {status}, use one from 200 to 599");
            Err(PyValueError::new_err(text))
        }
    }
}

/// A header block of pairs from Python, without what only concerns one connection or the mesh.
///
/// # Errors
/// `TypeError` for anything but pairs of bytes, `ValueError` for headers that HTTP does not allow.
pub(crate) fn headers_from_python(pairs: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(pairs.len().unwrap_or(0) + 1);
    for pair in pairs.try_iter()? {
        let pair = pair?;
        let (name, value) = two_of(&pair)?;
        append(&mut headers, &name, &value)?;
    }
    Ok(headers)
}

fn two_of<'py>(pair: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    if let Ok(pair) = pair.cast::<PyTuple>()
        && pair.len() == 2
    {
        return Ok((pair.get_item(0)?, pair.get_item(1)?));
    }
    // ASGI allows any iterable of two.
    let mut items = pair.try_iter()?;
    match (items.next(), items.next(), items.next()) {
        (Some(name), Some(value), None) => Ok((name?, value?)),
        _ => Err(PyValueError::new_err("a header is no pair of name and value")),
    }
}

fn append(
    headers: &mut HeaderMap,
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let name_bytes = bytes_of(name)?;
    let key = HeaderName::from_bytes(&name_bytes).map_err(|_| {
        let name = String::from_utf8_lossy(&name_bytes);
        PyValueError::new_err(format!("header {name:?} has characters that HTTP forbids"))
    })?;
    if is_for_this_hop(&key) || key.as_str().starts_with(names::PREFIX) {
        return Ok(());
    }
    // A value does not include the blanks around it, and HTTP/2 forbids them (RFC 9110, 5.5; RFC
    // 9113, 8.2.1).
    let value_bytes = bytes_of(value)?;
    let content = HeaderValue::from_bytes(trim_blanks(&value_bytes)).map_err(|_| {
        let text = format!("header {key:?} has a value with characters that HTTP forbids");
        PyValueError::new_err(text)
    })?;
    if key == CONTENT_LENGTH {
        return set_length(headers, content);
    }
    headers.append(key, content);
    Ok(())
}

fn trim_blanks(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(first) = value.iter().position(|byte| !is_blank(byte)) else { return &[] };
    let last = value.iter().rposition(|byte| !is_blank(byte)).unwrap_or(first);
    &value[first..=last]
}

/// Sets the length of an answer: readers that find another one there see another next answer.
///
/// # Errors
/// `ValueError` for anything but digits, and for two lengths (RFC 9110, 8.6).
fn set_length(headers: &mut HeaderMap, length: HeaderValue) -> PyResult<()> {
    let text = String::from_utf8_lossy(length.as_bytes());
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let text = format!("content-length is {text:?}, use digits alone");
        return Err(PyValueError::new_err(text));
    }
    if headers.get(CONTENT_LENGTH).is_some_and(|other| *other != length) {
        return Err(PyValueError::new_err("there are two different headers content-length"));
    }
    headers.insert(CONTENT_LENGTH, length);
    Ok(())
}

fn bytes_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    let kind = object.get_type().name()?;
    let text = format!("names and values of headers are bytes, one is of type {kind}");
    Err(PyTypeError::new_err(text))
}

/// Frames and connections are between the client and the ingress (RFC 9113, 8.2.2).
fn is_for_this_hop(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, TE, TRAILER].contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Refuses a length that the body of a whole answer does not have.
///
/// # Errors
/// `ValueError` naming both.
pub(crate) fn check_length(
    served_call: &ServedCall,
    status: StatusCode,
    headers: &HeaderMap,
    length: usize,
) -> PyResult<()> {
    let Some(announced) = headers.get(CONTENT_LENGTH) else { return Ok(()) };
    let may_differ = served_call.head.method == ::http::Method::HEAD
        || matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
    let is_right = announced.to_str().is_ok_and(|text| text.parse() == Ok(length));
    if may_differ || is_right {
        return Ok(());
    }
    let announced = String::from_utf8_lossy(announced.as_bytes());
    let text = format!("content-length is {announced} and the body has {length} bytes");
    Err(PyValueError::new_err(text))
}
