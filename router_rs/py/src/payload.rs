//! Messages between Python and `router_net`: borrows large buffers and copies small ones, at most
//! once.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyMemoryView};
use pyo3::{Py, ffi};
use router_net::grpc::Message;

use crate::ring::Ring;

/// Below this a copy is cheaper than a reference that must find its way back to the interpreter
/// to be dropped (arbitrary; the same figure as the ring's credit).
const COPY_BYTES_MAX: usize = 64 * 1024;

/// A longer chain of views is copied: numpy has two at most (arbitrary).
const OWNERS_MAX: usize = 8;

/// Converts a message for sending, see the stub's `Payload`. `ring` is notified when a buffer is
/// given back.
///
/// # Errors
/// `TypeError` for anything but a buffer, `ValueError` for a buffer that is not contiguous.
pub(crate) fn from_python(payload: &Bound<'_, PyAny>, ring: &Arc<Ring>) -> PyResult<Message> {
    if let Ok(bytes) = payload.cast::<PyBytes>() {
        return Ok(from_bytes(bytes).into());
    }
    let Ok(parts) = payload.cast::<PyList>() else {
        let kind = payload.get_type().name()?;
        let text = format!("a message is bytes or a list of buffers, this one is of type {kind}");
        return Err(PyTypeError::new_err(text));
    };
    let mut gathered = Gathered::default();
    for (index, part) in parts.iter().enumerate() {
        gathered.push(&part, ring).map_err(|error| name_part(parts.py(), index, &part, error))?;
    }
    Ok(gathered.finish())
}

fn from_bytes(bytes: &Bound<'_, PyBytes>) -> Bytes {
    let content = bytes.as_bytes();
    if content.len() < COPY_BYTES_MAX {
        Bytes::copy_from_slice(content)
    } else {
        borrow_bytes(bytes)
    }
}

fn borrow_bytes(bytes: &Bound<'_, PyBytes>) -> Bytes {
    Bytes::from_owner(PyBackedBytes::from(bytes.clone()))
}

/// Adds the index of the message's part to an error; errors of other kinds are unchanged.
fn name_part(py: Python<'_>, index: usize, part: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let kind = part.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    let text = format!("part {index} of the message ({kind}): {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(text)
    } else if error.is_instance_of::<PyValueError>(py) {
        PyValueError::new_err(text)
    } else {
        error
    }
}

/// The parts so far: neighbours that are copied share one block.
#[derive(Default)]
struct Gathered {
    message: Message,
    copied: BytesMut,
}

impl Gathered {
    fn push(&mut self, part: &Bound<'_, PyAny>, ring: &Arc<Ring>) -> PyResult<()> {
        if let Ok(bytes) = part.cast::<PyBytes>() {
            let content = bytes.as_bytes();
            if content.len() < COPY_BYTES_MAX {
                self.copied.extend_from_slice(content);
            } else {
                self.push_segment(borrow_bytes(bytes));
            }
            return Ok(());
        }
        let size = with_content(part, <[u8]>::len)?;
        if size < COPY_BYTES_MAX {
            with_content(part, |content| self.copied.extend_from_slice(content))?;
        } else if is_immutable(part)? {
            self.push_segment(Bytes::from_owner(Borrowed::new(part, Arc::clone(ring))?));
        } else {
            self.push_segment(with_content(part, Bytes::copy_from_slice)?);
        }
        Ok(())
    }

    fn push_segment(&mut self, segment: Bytes) {
        self.flush_copied();
        self.message.segments.push(segment);
    }

    fn flush_copied(&mut self) {
        if !self.copied.is_empty() {
            self.message.segments.push(std::mem::take(&mut self.copied).freeze());
        }
    }

    fn finish(mut self) -> Message {
        self.flush_copied();
        self.message
    }
}

/// Shows the content of a buffer.
///
/// By hand, since PyO3's `PyBuffer` refuses the buffers of numbers, which have no dimension.
fn with_content<T>(part: &Bound<'_, PyAny>, visit: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    let mut view = ffi::Py_buffer::new();
    // SAFETY: `view` stays where it is until it is released.
    if unsafe { ffi::PyObject_GetBuffer(part.as_ptr(), &raw mut view, ffi::PyBUF_FULL_RO) } != 0 {
        return Err(PyErr::fetch(part.py()));
    }
    // SAFETY: the view is filled.
    let content = unsafe { content(&view) }.map(visit);
    // SAFETY: as above, and nothing uses the content any more.
    unsafe { ffi::PyBuffer_Release(&raw mut view) };
    content
}

/// # Safety
/// The view was filled, and the slice is not used after it was released.
unsafe fn content(view: &ffi::Py_buffer) -> PyResult<&[u8]> {
    // SAFETY: the caller's.
    let (is_contiguous, holds_objects) = unsafe {
        let format = view.format;
        let is_contiguous = ffi::PyBuffer_IsContiguous(view, b'C' as c_char) != 0;
        let holds = || CStr::from_ptr(format).to_bytes().contains(&b'O');
        (is_contiguous, !format.is_null() && holds())
    };
    if !is_contiguous {
        let text = "its buffer is not C-contiguous, pass a contiguous copy of it";
        return Err(PyValueError::new_err(text));
    }
    if holds_objects {
        let text = "its buffer holds references to Python objects, pass their encoded bytes";
        return Err(PyValueError::new_err(text));
    }
    if view.len == 0 {
        return Ok(&[]); // whose pointer may be null
    }
    // SAFETY: a contiguous buffer has so many bytes at its start (PEP 3118). Nothing in Python
    // runs while they are read here; what the I/O threads read is `is_immutable`.
    Ok(unsafe { std::slice::from_raw_parts(view.buf.cast(), view.len as usize) })
}

/// Whether the content of a buffer is immutable, so that other threads may read it beside Python.
///
/// A read-only view may show something writable (`memoryview.toreadonly`, arrays of numpy), so all
/// owners of the content are checked. An owner without a buffer cannot tell.
fn is_immutable(part: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut owner = part.clone();
    for _ in 0..OWNERS_MAX {
        if !is_read_only(&owner) {
            return Ok(false);
        }
        let below = if owner.is_instance_of::<PyMemoryView>() { "obj" } else { "base" };
        match owner.getattr_opt(below)? {
            Some(next) if !next.is_none() => owner = next,
            _ => return Ok(true),
        }
    }
    Ok(false)
}

fn is_read_only(owner: &Bound<'_, PyAny>) -> bool {
    let mut view = ffi::Py_buffer::new();
    // SAFETY: as in `with_content`.
    if unsafe { ffi::PyObject_GetBuffer(owner.as_ptr(), &raw mut view, ffi::PyBUF_FULL_RO) } != 0 {
        drop(PyErr::take(owner.py()));
        return false;
    }
    let is_read_only = view.readonly != 0;
    // SAFETY: the view is filled.
    unsafe { ffi::PyBuffer_Release(&raw mut view) };
    is_read_only
}

/// A buffer of Python that the I/O threads read, kept alive by a memoryview of our own.
///
/// A memoryview and not a `Py_buffer`: to release a `Py_buffer` takes the GIL, which an I/O thread
/// must never wait for. A reference to an object may be dropped anywhere: PyO3 notes it, and the
/// next Python thread that enters this module drops it, which releases the buffer. The ring makes
/// its loop enter, so that a buffer does not stay taken while the loop sleeps.
struct Borrowed {
    start: *const u8,
    length: usize,
    /// `None` only while it is dropped.
    view: Option<Py<PyMemoryView>>,
    ring: Arc<Ring>,
}

// SAFETY: the pointer is to memory that `view` keeps where it is, and that is only read.
unsafe impl Send for Borrowed {}

impl Borrowed {
    fn new(part: &Bound<'_, PyAny>, ring: Arc<Ring>) -> PyResult<Self> {
        let view = PyMemoryView::from(part)?;
        // Read from the view, so that the view keeps the memory behind the pointer alive.
        let (start, length) = with_content(&view, |content| (content.as_ptr(), content.len()))?;
        Ok(Self { start, length, view: Some(view.unbind()), ring })
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see `new`; it is not empty, and `is_immutable`.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        drop(self.view.take());
        self.ring.note_release();
    }
}

/// A received message as one `bytes`, with one copy; its pieces are freed as they are copied.
pub(crate) fn to_python(py: Python<'_>, message: Message) -> PyResult<Bound<'_, PyBytes>> {
    match &message.segments[..] {
        [] => Ok(PyBytes::new(py, b"")),
        [segment] => Ok(PyBytes::new(py, segment)),
        _ => join(py, message),
    }
}

/// Like `PyBytes::new_with`, which writes zeros first.
fn join(py: Python<'_>, message: Message) -> PyResult<Bound<'_, PyBytes>> {
    let length = ffi::Py_ssize_t::try_from(message.len())?;
    // SAFETY: without a source the new object has `length` bytes to be written, the segments are
    // just as long together, and nobody else has the object yet.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
        let bytes = Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>();
        let mut target = ffi::PyBytes_AsString(object).cast::<u8>();
        for segment in message.segments {
            std::ptr::copy_nonoverlapping(segment.as_ptr(), target, segment.len());
            target = target.add(segment.len());
        }
        Ok(bytes)
    }
}
