//! [`NatsMarks`]: marks as the last messages of subjects in a JetStream stream, each with a time to live.
//!
//! The stream is a key-value bucket in all but name: one message a subject, replaced if the sequence of the last one is
//! as expected. Reads go to the leader of the stream (`allow_direct` is off), because a follower may miss a mark that
//! was set a moment ago.

use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    Config, DeleteMessageErrorKind, DiscardPolicy, LastRawMessageErrorKind, Stream,
};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, HeaderMap, header};
use bowline::cluster::{MarkError, MarkFuture, Marks, Unavailable, check_mark_size};
use bytes::Bytes;

use crate::LIMIT;
use crate::error::{ConnectError, unavailable};
use crate::subjects::Subjects;

/// Marks in a stream. The server's clock decides when they expire, in whole seconds.
#[derive(Clone)]
pub(crate) struct NatsMarks {
    context: Context,
    stream: Stream,
    subjects: Subjects,
}

/// What must be the last message of a subject for a new one to be stored.
#[derive(Clone, Copy)]
enum Expected {
    Anything,
    Nothing,
    Sequence(u64),
}

/// Whether a message was stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Yes,
    OtherLast,
}

impl NatsMarks {
    /// Opens the stream, or creates it.
    pub(crate) async fn open(client: &Client, subjects: &Subjects) -> Result<Self, ConnectError> {
        let mut context = jetstream::new(client.clone());
        context.set_timeout(REQUEST_LIMIT);
        let config = Config {
            name: subjects.stream(),
            subjects: vec![subjects.all_marks()],
            description: Some("marks of bowline servers, which expire one by one".to_owned()),
            max_messages_per_subject: 1,
            // A full stream refuses new marks; one that forgot old ones would repeat effects.
            discard: DiscardPolicy::New,
            allow_message_ttl: true,
            allow_direct: false,
            ..Config::default()
        };
        let created = tokio::time::timeout(LIMIT, context.get_or_create_stream(config)).await;
        let created = created.map_err(|_| Unavailable::timed_out("NATS", LIMIT))?;
        let stream = created.map_err(ConnectError::Stream)?;
        Ok(Self {
            context,
            stream,
            subjects: subjects.clone(),
        })
    }

    async fn put(
        &self,
        key: &[u8],
        value: &[u8],
        lifetime: Duration,
        expected: Expected,
    ) -> Result<Stored, MarkError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_MESSAGE_TTL, seconds(lifetime).to_string());
        let sequence = match expected {
            Expected::Anything => None,
            Expected::Nothing => Some(0),
            Expected::Sequence(sequence) => Some(sequence),
        };
        if let Some(sequence) = sequence {
            let name = header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
            headers.insert(name, sequence.to_string());
        }
        let (subject, value) = (self.subjects.mark(key), Bytes::copy_from_slice(value));
        let sent = self
            .context
            .publish_with_headers(subject, headers, value)
            .await;
        let acknowledged = match sent {
            Ok(acknowledged) => acknowledged.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(_) => Ok(Stored::Yes),
            Err(error) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Ok(Stored::OtherLast),
                _ => Err(unavailable(error).into()),
            },
        }
    }

    async fn last(&self, key: &[u8]) -> Result<Option<StreamMessage>, MarkError> {
        let subject = self.subjects.mark(key);
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                _ => Err(unavailable(error).into()),
            },
        }
    }

    async fn set_absent(
        &self,
        key: &[u8],
        value: &[u8],
        lifetime: Duration,
    ) -> Result<Option<Bytes>, MarkError> {
        loop {
            if self.put(key, value, lifetime, Expected::Nothing).await? == Stored::Yes {
                return Ok(None);
            }
            if let Some(message) = self.last(key).await? {
                return Ok(Some(message.payload));
            }
            // The mark expired between the two.
        }
    }

    async fn replace_expected(
        &self,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        lifetime: Duration,
    ) -> Result<bool, MarkError> {
        loop {
            let last = self.last(key).await?;
            let Some(last) = last.filter(|last| last.payload == expected) else {
                return Ok(false);
            };
            let expected = Expected::Sequence(last.sequence);
            if self.put(key, value, lifetime, expected).await? == Stored::Yes {
                return Ok(true);
            }
            // Renewed, replaced or expired between the two.
        }
    }

    async fn remove_expected(&self, key: &[u8], expected: &[u8]) -> Result<bool, MarkError> {
        loop {
            let last = self.last(key).await?;
            let Some(last) = last.filter(|last| last.payload == expected) else {
                return Ok(false);
            };
            match self.stream.delete_message(last.sequence).await {
                Ok(true) => return Ok(true),
                // Replaced, removed or expired between the two.
                Ok(false) => {}
                Err(error) => match error.kind() {
                    DeleteMessageErrorKind::JetStream(refused) if refused.code() < 500 => {}
                    _ => return Err(unavailable(error).into()),
                },
            }
        }
    }
}

impl Marks for NatsMarks {
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            within_limit(self.set_absent(key, value, lifetime)).await
        })
    }

    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], lifetime: Duration) -> MarkFuture<'a, ()> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            let put = self.put(key, value, lifetime, Expected::Anything);
            within_limit(put).await.map(drop)
        })
    }

    fn replace<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            within_limit(self.replace_expected(key, expected, value, lifetime)).await
        })
    }

    fn read<'a>(&'a self, key: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, b"")?;
            let last = within_limit(self.last(key)).await?;
            Ok(last.map(|message| message.payload))
        })
    }

    fn remove<'a>(&'a self, key: &'a [u8], expected: &'a [u8]) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, expected)?;
            within_limit(self.remove_expected(key, expected)).await
        })
    }
}

async fn within_limit<T>(
    operation: impl Future<Output = Result<T, MarkError>>,
) -> Result<T, MarkError> {
    let outcome = tokio::time::timeout(LIMIT, operation).await;
    outcome.unwrap_or_else(|_| Err(Unavailable::timed_out("NATS", LIMIT).into()))
}

/// Returns a lifetime in whole seconds, rounded up: at least one, at most 100 years.
fn seconds(lifetime: Duration) -> u64 {
    let seconds = lifetime
        .as_secs()
        .saturating_add(u64::from(lifetime.subsec_nanos() > 0));
    seconds.clamp(1, 100 * 365 * 24 * 60 * 60)
}

const REQUEST_LIMIT: Duration = Duration::from_secs(4);
