//! The body of a response, whoever sent the request.

use std::error::Error as StdError;
use std::pin::Pin;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::{Error, Result};

/// The body of a response. Dropping it abandons the request.
#[must_use = "dropping the body of a response abandons its request"]
pub struct ResponseBody(
    Pin<Box<dyn Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>> + Send>>,
);

impl ResponseBody {
    /// The body of a response from any HTTP client.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Box::pin(body.map_err(Into::into)))
    }

    /// Whether it is known to have been read to its end.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    /// The next piece; `None` at the end.
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
                    let what = "the response broke off".into();
                    return Err(Error::Transport {
                        what,
                        source: Some(error),
                    });
                }
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    ///
    /// If it breaks off, or is more than `limit` bytes; then no more than that is read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.chunk().await? else {
            // One piece is the rule, and needs no copy.
            return if first.len() > limit {
                Err(too_long(limit))
            } else {
                Ok(first)
            };
        };
        let mut all = [first, second].concat();
        while let Some(chunk) = self.chunk().await? {
            if all.len() + chunk.len() > limit {
                return Err(too_long(limit));
            }
            all.extend_from_slice(&chunk);
        }
        if all.len() > limit {
            Err(too_long(limit))
        } else {
            Ok(all.into())
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

fn too_long(limit: usize) -> Error {
    Error::protocol(format!("the response is longer than {limit} bytes"))
}
