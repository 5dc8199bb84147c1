//! [`TappedBody`]: a body that is recorded while it passes through.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bowline_recording::{EndedBy, EventKind, Recorder};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body::{Body, Frame, SizeHint};

use super::message_tee::MessageTee;

/// A body with a tee. Dropping it before its end drops the body inside, which closes the request.
pub(super) struct TappedBody<B> {
    body: B,
    tee: MessageTee,
    /// The bytes that are still to come, if that is known.
    remaining: Option<u64>,
    /// Of a response: records the end of the exchange when it is dropped.
    end: Option<ExchangeEnd>,
}

impl<B: Body> TappedBody<B> {
    pub(super) fn request(body: B, tee: MessageTee, headers: &HeaderMap) -> Self {
        Self {
            body,
            tee,
            remaining: content_length(headers),
            end: None,
        }
    }

    pub(super) fn response(
        body: B,
        tee: MessageTee,
        headers: &HeaderMap,
        end: ExchangeEnd,
    ) -> Self {
        let mut response = Self {
            body,
            tee,
            remaining: content_length(headers),
            end: Some(end),
        };
        // A response without a body, such as 202, is never read.
        if response.remaining == Some(0) || response.body.is_end_stream() {
            response.complete();
        }
        response
    }

    /// The body is complete. Called before the last chunk is passed on if its length is known: the server may answer a
    /// request as soon as it has that chunk, and the answer must not be recorded first.
    fn complete(&mut self) {
        self.tee.finish();
        if let Some(end) = &self.end {
            end.set(EndedBy::Server, true);
        }
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.trim().parse().ok()
}

impl<B: Body<Data = Bytes> + Unpin> Body for TappedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.complete(),
            Some(Ok(frame)) => {
                if let Some(chunk) = frame.data_ref() {
                    self.tee.push(chunk);
                    let length = chunk.len() as u64;
                    self.remaining = self.remaining.map(|left| left.saturating_sub(length));
                }
                if self.remaining == Some(0) || self.body.is_end_stream() {
                    self.complete();
                }
            }
            Some(Err(_)) => {
                if let Some(end) = &self.end {
                    end.set(EndedBy::Server, false);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Records the end of an exchange when it is dropped: by the client, unless another end was seen.
pub(super) struct ExchangeEnd {
    recorder: Recorder,
    connection: u64,
    exchange: u64,
    end: AtomicU8,
    /// The proxy is ending all exchanges.
    is_stopping: Arc<AtomicBool>,
}

impl ExchangeEnd {
    pub(super) fn new(
        recorder: Recorder,
        connection: u64,
        exchange: u64,
        is_stopping: Arc<AtomicBool>,
    ) -> Self {
        Self {
            recorder,
            connection,
            exchange,
            end: AtomicU8::new(CUT_BY_CLIENT),
            is_stopping,
        }
    }

    pub(super) fn set(&self, by: EndedBy, is_complete: bool) {
        let end = match (by, is_complete) {
            (_, true) => COMPLETE,
            (EndedBy::Client, false) => CUT_BY_CLIENT,
            (EndedBy::Server, false) => CUT_BY_SERVER,
            (EndedBy::Tap, false) => CUT_BY_TAP,
        };
        self.end.store(end, Ordering::Relaxed);
    }
}

impl Drop for ExchangeEnd {
    fn drop(&mut self) {
        let (by, complete) = match self.end.load(Ordering::Relaxed) {
            COMPLETE => (EndedBy::Server, true),
            CUT_BY_SERVER => (EndedBy::Server, false),
            CUT_BY_TAP => (EndedBy::Tap, false),
            _ if self.is_stopping.load(Ordering::Relaxed) => (EndedBy::Tap, false),
            _ => (EndedBy::Client, false),
        };
        let kind = EventKind::End { by, complete };
        self.recorder
            .record(self.connection, Some(self.exchange), kind);
    }
}

const CUT_BY_CLIENT: u8 = 0;
const CUT_BY_SERVER: u8 = 1;
const CUT_BY_TAP: u8 = 2;
const COMPLETE: u8 = 3;
