//! Closes the sending half of a request's connection, and keeps reading: how a server reacts to a client that is gone.
//!
//! Over modern HTTP a client cancels a call by closing its request. What the server then does with the call is not
//! visible to a client that has closed its socket. A client that has closed only its half looks the same to most
//! servers and proxies, and still sees whether an answer comes.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use super::http::{Endpoint, Outgoing};
use super::socket::{self, Io, Offer};

/// What came after the half-close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AfterClose {
    /// The call ended before the client closed it.
    TooFast,
    /// The result.
    Answered,
    /// Progress, until the doctor stopped reading.
    ProgressWentOn,
    /// The server closed the connection, or answered with an error.
    Closed,
    /// Nothing, and the connection stayed open.
    Silent,
    Failed(String),
}

/// Sends a call, closes the sending half after `start`, and reads for at most the patience of a cancel. `id` and `token`
/// must not occur in other messages.
pub(crate) async fn cancel_by_closing(
    endpoint: &Endpoint,
    outgoing: &Outgoing,
    id: u64,
    token: &str,
    start: Duration,
) -> AfterClose {
    let opened = socket::open(&endpoint.address, Offer::Http1, endpoint.patience.answer).await;
    let mut io = match opened {
        Ok(opened) => opened.io,
        Err(failure) => return AfterClose::Failed(failure.to_string()),
    };
    let written = tokio::time::timeout(endpoint.patience.answer, async {
        io.write_all(&encode(endpoint, outgoing)).await?;
        io.flush().await
    });
    if !matches!(written.await, Ok(Ok(()))) {
        return AfterClose::Failed("the request could not be written".to_owned());
    }
    let before = receive(&mut io, start, id, token).await;
    if before.is_answered || before.is_closed {
        return match before.status {
            Some(200) | None => AfterClose::TooFast,
            Some(status) => AfterClose::Failed(format!("status {status}")),
        };
    }
    if !matches!(
        tokio::time::timeout(endpoint.patience.answer, io.shutdown()).await,
        Ok(Ok(()))
    ) {
        return AfterClose::Failed("the connection could not be closed".to_owned());
    }
    let after = receive(&mut io, endpoint.patience.cancel, id, token).await;
    match after {
        Received {
            is_answered: true,
            has_result: true,
            ..
        } => AfterClose::Answered,
        Received {
            is_answered: true, ..
        }
        | Received {
            is_closed: true, ..
        } => AfterClose::Closed,
        Received {
            has_late_progress: true,
            ..
        } => AfterClose::ProgressWentOn,
        _ => AfterClose::Silent,
    }
}

#[derive(Debug, Default)]
struct Received {
    status: Option<u16>,
    /// A message with the id of the call has arrived.
    is_answered: bool,
    has_result: bool,
    /// Progress arrived in the second half of the time.
    has_late_progress: bool,
    is_closed: bool,
}

/// Reads until the answer, the end or the time limit.
async fn receive(io: &mut Box<dyn Io>, limit: Duration, id: u64, token: &str) -> Received {
    let started = Instant::now();
    let mut received = Received::default();
    let (mut all, mut chunk) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match timeout_at(started + limit, io.read(&mut chunk)).await {
            Err(_) => return received,
            Ok(Ok(0) | Err(_)) => {
                received.is_closed = true;
                return received;
            }
            Ok(Ok(length)) => {
                let is_late = started.elapsed() > limit / 2;
                let chunk = &chunk[..length];
                received.has_late_progress |=
                    is_late && String::from_utf8_lossy(chunk).contains(token);
                all.extend_from_slice(chunk);
            }
        }
        if all.len() > MAX_RECEIVED {
            return received;
        }
        let text = String::from_utf8_lossy(&all);
        received.status = received.status.or_else(|| status(&text));
        if let Some(at) = find_id(&text, id) {
            // The event or body with the id, which may not be complete yet.
            let message = &text[text[..at].rfind('\n').unwrap_or(0)..];
            received.has_result = message.contains("\"result\"");
            received.is_answered = received.has_result || message.contains("\"error\"");
            if received.is_answered {
                return received;
            }
        }
    }
}

fn find_id(text: &str, id: u64) -> Option<usize> {
    [
        format!("\"id\":{id}"),
        format!("\"id\": {id}"),
        format!("\"id\":\"{id}\""),
    ]
    .iter()
    .find_map(|needle| text.find(needle))
}

fn status(text: &str) -> Option<u16> {
    text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

fn encode(endpoint: &Endpoint, outgoing: &Outgoing) -> Vec<u8> {
    let uri = &endpoint.uri;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |it| it.as_str());
    let host = host.rsplit('@').next().unwrap_or_default();
    let mut request =
        format!("{} {path} HTTP/1.1\r\nhost: {host}\r\n", outgoing.method).into_bytes();
    let mut headers = endpoint.headers.clone();
    headers.extend(outgoing.headers.clone());
    for (name, value) in &headers {
        request.extend_from_slice(name.as_str().as_bytes());
        request.extend_from_slice(b": ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request
        .extend_from_slice(format!("content-length: {}\r\n\r\n", outgoing.body.len()).as_bytes());
    request.extend_from_slice(&outgoing.body);
    request
}

const MAX_RECEIVED: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_by_its_id() {
        assert_eq!(
            find_id(r#"data: {"id": 770001,"result":{}}"#, 770_001),
            Some(7)
        );
        assert_eq!(find_id(r#"{"id":77}"#, 770_001), None);
        assert_eq!(status("HTTP/1.1 404 Not Found\r\n"), Some(404));
        assert_eq!(status("HTTP/2"), None);
    }
}
