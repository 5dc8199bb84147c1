//! `ResponseBody`, the response body of any [`HttpClient`](super::HttpClient).

use std::error::Error as StdError;
use std::pin::Pin;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::response::over_budget;
use crate::limits::ReadCharge;
use crate::{Error, Result};

/// The body of a response. Dropping it aborts the request.
#[must_use = "dropping the body aborts the request"]
pub struct ResponseBody(
    Pin<Box<dyn Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>> + Send>>,
);

impl ResponseBody {
    /// Wraps the response body of any HTTP client.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Box::pin(body.map_err(Into::into)))
    }

    /// Returns whether the body is known to have been read to its end.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    /// Returns the next chunk; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.0.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    let what = "failed to read the response body".into();
                    return Err(Error::Transport {
                        what,
                        source: Some(error),
                    });
                }
            }
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// If reading fails, or the body exceeds `limit` bytes; its rest is not read then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the request.
    pub async fn collect(self, limit: usize) -> Result<Bytes> {
        self.collect_charged(limit, ReadCharge::new(None)).await
    }

    /// As [`collect`](Self::collect), and charges the buffer before it grows.
    pub(super) async fn collect_charged(
        mut self,
        limit: usize,
        mut charge: ReadCharge,
    ) -> Result<Bytes> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.chunk().await? else {
            // Most bodies are one chunk, which needs no copy.
            return if first.len() > limit {
                Err(too_long(limit))
            } else {
                Ok(first)
            };
        };
        let mut all = Vec::new();
        make_room(&mut all, first.len() + second.len(), limit, &mut charge)?;
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            make_room(&mut all, chunk.len(), limit, &mut charge)?;
            all.extend_from_slice(&chunk);
        }
        Ok(all.into())
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// Makes room for `more` bytes, and charges it first.
fn make_room(all: &mut Vec<u8>, more: usize, limit: usize, charge: &mut ReadCharge) -> Result<()> {
    let length = all.len() + more;
    if length > limit {
        return Err(too_long(limit));
    }
    if length > all.capacity() {
        let capacity = length.max(2 * all.capacity()).min(limit);
        charge.set(capacity).map_err(over_budget)?;
        all.reserve_exact(capacity - all.len());
    }
    Ok(())
}

fn too_long(limit: usize) -> Error {
    Error::protocol(format!(
        "the response body exceeds the limit of {limit} bytes"
    ))
}
