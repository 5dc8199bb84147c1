//! A client's end of standard input and output: one message per line.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::wire::{Delivery, FrontWire, Incoming, delivered};

#[derive(Debug)]
pub(crate) struct LineWire {
    outgoing: UnboundedSender<Value>,
    incoming: UnboundedReceiver<Incoming>,
}

impl LineWire {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        let (reading, mut writing) = tokio::io::split(stream);
        let (outgoing, mut to_write) = mpsc::unbounded_channel::<Value>();
        let (arrived, incoming) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = to_write.recv().await {
                if writing
                    .write_all(format!("{message}\n").as_bytes())
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            let mut lines = BufReader::new(reading).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = arrived.send(match serde_json::from_str(&line) {
                    Ok(message) => Incoming::Message {
                        within: None,
                        message,
                    },
                    Err(error) => Incoming::Failed(format!("{error}: {line}")),
                });
            }
            let _ = arrived.send(Incoming::Failed("the pipe was closed".to_owned()));
        });
        Self { outgoing, incoming }
    }
}

impl FrontWire for LineWire {
    fn request(&mut self, message: Value) {
        let _ = self.outgoing.send(message);
    }

    fn post(&mut self, message: Value) -> Delivery {
        let _ = self.outgoing.send(message);
        delivered()
    }

    fn open_stream(&mut self) -> Delivery {
        delivered()
    }

    fn close_response(&mut self, _id: &Value) {}

    fn incoming(&mut self) -> &mut UnboundedReceiver<Incoming> {
        &mut self.incoming
    }
}
