//! An upstream server on standard input and output: one message per line.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::State;
use super::connection::Connection;

/// Starts a server; returns the client's end of its pipes.
pub(super) fn spawn(state: &Arc<State>) -> DuplexStream {
    let (server, client) = tokio::io::duplex(64 * 1024);
    let connection = state.connect();
    tokio::spawn(serve(state.clone(), connection, server));
    client
}

async fn serve(state: Arc<State>, connection: Arc<Connection>, stream: DuplexStream) {
    let (reading, mut writing) = tokio::io::split(stream);
    let (reply, mut replies) = mpsc::unbounded_channel::<Value>();
    connection.table().standalone = Some(reply.clone());
    let writer = tokio::spawn(async move {
        while let Some(message) = replies.recv().await {
            if writing
                .write_all(format!("{message}\n").as_bytes())
                .await
                .is_err()
            {
                return;
            }
        }
    });
    let mut lines = BufReader::new(reading).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(message) => state.arrive(&connection, message, reply.clone()),
            Err(_) => state.violation(&connection, format!("not JSON: {line}")),
        }
    }
    connection.end();
    state.record.touch();
    writer.abort();
}
