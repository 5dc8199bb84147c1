//! Collects the chunks of a request body in one buffer, and reuses the buffers of long bodies.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::sync::Mutex;

/// The part of a body that has arrived. Most bodies are one chunk, which is not copied.
///
/// A longer one is collected in pieces of equal size until half of it has arrived, and then in one buffer for all
/// of it. Allocating that buffer at the start would let a client reserve memory without sending the body; a growing
/// buffer would fragment the heap, and the process would use a multiple of what is charged.
#[derive(Default)]
pub(super) struct BodyBuffer {
    first: Bytes,
    /// Full pieces, in order.
    full: Vec<BytesMut>,
    /// The piece, or the buffer for the whole body, that is being filled.
    last: BytesMut,
    len: usize,
}

impl BodyBuffer {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends `data`. The whole body has at least `expected` bytes.
    pub(super) fn push(&mut self, mut data: impl Buf, expected: usize) {
        let is_first = self.len == 0;
        self.len += data.remaining();
        if is_first {
            self.first = data.copy_to_bytes(data.remaining());
            return;
        }
        if self.last.capacity() == 0 {
            self.last = BytesMut::with_capacity(expected.clamp(MIN_PIECE_SIZE, PIECE_SIZE));
            let first = std::mem::take(&mut self.first);
            self.put(first, expected);
        }
        self.put(data, expected);
    }

    fn put(&mut self, mut data: impl Buf, expected: usize) {
        while data.has_remaining() {
            let room = self.last.capacity() - self.last.len();
            if room == 0 {
                self.grow(expected);
                continue;
            }
            let fits = data.remaining().min(room);
            self.last.put((&mut data).take(fits));
        }
    }

    fn grow(&mut self, expected: usize) {
        let held = self.full.iter().chain([&self.last]);
        let held: usize = held.map(BytesMut::len).sum();
        if (held + 1..=held * MAX_RESERVE).contains(&expected) {
            self.last = self.joined(expected);
        } else {
            let next = BytesMut::with_capacity(PIECE_SIZE);
            self.full.push(std::mem::replace(&mut self.last, next));
        }
    }

    fn joined(&mut self, capacity: usize) -> BytesMut {
        let mut whole = match capacity {
            0..MIN_POOLED => BytesMut::with_capacity(capacity),
            _ => buffer(capacity),
        };
        for piece in self.full.drain(..).chain([std::mem::take(&mut self.last)]) {
            whole.extend_from_slice(&piece);
        }
        whole
    }

    pub(super) fn into_bytes(mut self) -> Bytes {
        if self.last.is_empty() {
            return self.first;
        }
        if !self.full.is_empty() || self.last.capacity() > 2 * self.len {
            self.last = self.joined(self.len);
        }
        match self.last.capacity() {
            0..MIN_POOLED => self.last.freeze(),
            _ => Bytes::from_owner(PooledBuffer(self.last)),
        }
    }
}

/// A buffer that goes back to the pool when the last slice of the body is dropped.
struct PooledBuffer(BytesMut);

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        let mut unused = UNUSED.lock();
        let pooled: usize = unused.iter().map(BytesMut::capacity).sum();
        if pooled + buffer.capacity() <= MAX_POOLED {
            buffer.clear();
            unused.push(buffer);
        }
    }
}

/// Takes an unused buffer of about this capacity, or allocates one.
///
/// Without the pool, several long bodies at a time make the allocator return memory to the operating system after each
/// request and fault it in again for the next, which takes longer than reading the body.
fn buffer(capacity: usize) -> BytesMut {
    let fits = |buffer: &BytesMut| (capacity..=capacity * 2).contains(&buffer.capacity());
    let mut unused = UNUSED.lock();
    let found = unused.iter().position(fits);
    let found = found.map(|at| unused.swap_remove(at));
    // Unlocked first: the allocation may take long.
    drop(unused);
    found.unwrap_or_else(|| BytesMut::with_capacity(capacity))
}

/// Shared by all servers of the process. At most [`MAX_POOLED`] bytes.
static UNUSED: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());
const MAX_POOLED: usize = 8 << 20;
/// The minimum size of a pooled buffer: allocators return smaller ones to the operating system rarely.
const MIN_POOLED: usize = 256 * 1024;
/// The size of the pieces of an arriving body, and the minimum of the first one.
const PIECE_SIZE: usize = 64 * 1024;
const MIN_PIECE_SIZE: usize = 1024;
/// How many times what has arrived a body may reserve. Reserved memory may be resident: allocators reuse pages that
/// were written to before.
const MAX_RESERVE: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_long_body_is_used_again() {
        let long = vec![7; MIN_POOLED + 12_345];
        let collect = || {
            let mut whole = BodyBuffer::default();
            for chunk in long.chunks(16 * 1024) {
                whole.push(chunk, long.len());
            }
            whole.into_bytes()
        };
        let first = collect();
        let slice = first.slice(10..20);
        let address = first.as_ptr();
        drop(first);

        let while_in_use = collect();
        assert_ne!(while_in_use.as_ptr(), address, "a slice of it is in use");
        drop((slice, while_in_use));

        let unused: Vec<_> = UNUSED.lock().iter().map(|it| it.as_ptr()).collect();
        assert!(unused.contains(&address));
        assert!(UNUSED.lock().iter().map(BytesMut::capacity).sum::<usize>() <= MAX_POOLED);
        assert_eq!(collect(), long);
    }

    #[test]
    fn a_body_split_into_chunks_is_reassembled() {
        let text: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        for length in [
            0,
            1,
            MIN_PIECE_SIZE,
            40_000,
            PIECE_SIZE,
            PIECE_SIZE + 1,
            text.len(),
        ] {
            for size in [1, 7, 1000, 16_384, length.max(1)] {
                for expected in [0, length, text.len() * 100] {
                    let mut whole = BodyBuffer::default();
                    for piece in text[..length].chunks(size) {
                        whole.push(piece, expected);
                    }

                    assert_eq!(whole.len(), length);
                    assert!(whole.into_bytes() == text[..length], "{length} by {size}");
                }
            }
        }
    }

    #[test]
    fn a_body_reserves_a_limited_multiple_of_what_arrived() {
        let mut whole = BodyBuffer::default();
        for sent in 1..=400 {
            whole.push(&[0; 10_000][..], 4 << 20);

            let pieces = whole.full.iter().chain([&whole.last]);
            let held: usize = pieces.map(BytesMut::capacity).sum();
            let most = (sent * 10_000 * MAX_RESERVE).max(sent * 10_000 + PIECE_SIZE);
            assert!(held <= most, "{held} bytes after {sent} pieces");
        }
    }
}
